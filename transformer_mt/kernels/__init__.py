"""Fast functions from tensors to tensors, and the device on which they run.

Each function equals a plain PyTorch function, which its docstring names; a test compares both. No file here knows a
model.

Other rooms use:

    cross_entropy: chunked_cross_entropy
    device: check_c_compiler, choose_device, Device, end_of_queue, on_device, on_host, peak_memory_on,
        why_gpu_unused
    elementary: Dropout, Linear, linear, linear_maps, linear_relu
    matmul: best_matmul, do_without_onednn, Matmul, ONEDNN_REFUSES, Quantization
    packed_attention: Near, packed_self_attention, Segments
    r_drop: r_drop
    row_attention: RowMask, Rows
    top_words
"""
