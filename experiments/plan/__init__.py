"""What a config would take on devices that are not here."""
