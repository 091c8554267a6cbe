"""A stand-in for torchaudio, which speechbrain imports and what is tested of it does not use.

torchaudio's wheel needs the libraries of a torch built for CUDA, so it cannot be imported here.
"""

__version__ = "0"
