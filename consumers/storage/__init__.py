"""Where artifacts are kept, and how one is known to be whole: by a small manifest beside it, which is written last.

    clips/42.mp4
    clips/42.mp4.manifest.json     {"bytes": 1048576, "sha256": "…"}

An object without a manifest, or of another size than its manifest says, is not whole, and is made again.
"""
