"""What declares a key of yard.yaml: its type, its bounds, its sentence, and the words for a wrong one, with its place.

`config` reads a file by it, and each engine declares the keys of its clusters by it (`engines/KIND/keys.py`), those of
other packages too. It opens no file, and knows neither YAML nor an engine.
"""
