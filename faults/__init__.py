"""What the service does when its parts die, hang, are cut off or are overloaded; ``make faults`` runs all of it."""
