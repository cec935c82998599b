"""Which agent made a call, and which version of it: the harness without what changes between renderings.

``harness_id`` is the exact hash of prompt, tools and sampling. Statistics need more: the same agent
under the same name tomorrow, and a new version number only where somebody edited it.
"""
