"""TPU slices: generations, shapes, meshes, and the forced CPU devices that stand for them."""
