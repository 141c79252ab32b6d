"""Files in the bucket: folders under a manifest, models, and what is kept under its digest."""
