"""What a person reads about a model: the report and the model card (extra `report`)."""
