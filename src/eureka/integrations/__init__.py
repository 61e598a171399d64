"""Callbacks that report plateaus, Eureka-moments and attention while somebody else's loop trains.

`hugging_face.HuggingFaceCallback` and `lightning.LightningCallback` need the package they are for; `monitor.Monitor` serves any
loop.
"""

from eureka.errors import need

need("torch")
