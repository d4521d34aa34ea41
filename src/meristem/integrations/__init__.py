"""Growing in the training loops of other libraries; ``import meristem`` imports none of them.

Each file needs the library it is named after, and an extra of the same name installs it: ``meristem[lightning]``,
``meristem[transformers]``, ``meristem[accelerate]``.
"""
