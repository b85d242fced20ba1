"""One module a command, each with `main(args) -> int`. Imported when its command is used, never before."""
