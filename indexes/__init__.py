"""Secondary indexes: where in history an attribute has a rare value."""
