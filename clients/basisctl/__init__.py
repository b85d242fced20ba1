"""The command line of the basis daemon: one prompt, one question, one look, then gone. Just another client.

`cli.py` knows the arguments, `commands/` does the work, everything that reaches a terminal goes through `visible.py`.
Knows nothing of the daemon's code. Start-up time is a feature here: commands and their imports are loaded when used.
"""
