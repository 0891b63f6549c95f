"""Guards that catch what is wrong in silence: a finite loss, a worse curve."""
