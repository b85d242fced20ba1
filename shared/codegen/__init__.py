"""Makes everything that is derived from `basis_protocol`: schema, editor types, reference page, golden messages.

Not shipped. `python -m codegen.generate` writes, `python -m codegen.generate --check` only compares.
"""
