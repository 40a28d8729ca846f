"""Storm warnings are read from two services and pushed to phones; what is over is archived, as files in the end."""
