"""``vinoqueue model convert``: conversion of models to other weight formats, and measurement of the loss."""
