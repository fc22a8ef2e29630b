"""Synthetic MoE training traces whose breakdown, overlap and skew are known exactly."""
