"""``vinoqueue up``: runs a store, one worker and one API replica on one machine."""
