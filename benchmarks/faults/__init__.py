"""The fault suite: small training runs with a known fault, and healthy ones, to judge what tells them apart."""
