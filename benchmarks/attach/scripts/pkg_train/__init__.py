"""A small package: python -m pkg_train.train"""

from .model import TextCNN

__all__ = ["TextCNN"]
