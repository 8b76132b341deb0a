"""Proofs of the elementary functions: every f32 argument against an independent evaluation of higher precision."""
