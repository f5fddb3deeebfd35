"""A model becomes a faster model that computes the same.

fast.py has the table of all that is exchanged by default; `training.kernels=plain` and `--plain` leave it out. A search
freezes the weights as well, and on a GPU records its steps as CUDA graphs.

Other rooms use:

    cuda_graphs: CudaCapture, make_room, with_cuda_graphs
    ensemble: Ensemble
    fast: build_model, check_memory
    frozen: frozen
"""
