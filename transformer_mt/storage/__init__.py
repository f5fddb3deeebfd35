"""Writes files completely or not at all, locks them, and checks them when it reads them.

A stage changes only files that it made itself. The formats that several stages share, such as run.json, are also here.

Other rooms use:

    checksums: check_model, checkpoint_path, CONFIG, COPIED_FROM_DATA, EXPORT_FILES, Fault, fault,
        how_to_get_a_model, MODEL, MODEL_FILES, read_sums, saved_steps, sha256, stale_warning, SUMS, TOKENIZERS,
        weights_sha256, write_sums
    files: cure, finite, flush_to_disk, is_stream, own_name, parse_json, read_json, read_regular, replacing,
        write_json, write_whole
    output_parts: OutputParts
    own_directory: check_own, hold, Owner, replacing_directory, temporary_directory
    records: Count, Drawn, processor, Record, Start, STARTS, Summary, versions
    weights: check_shapes, check_weights, copy_weights, load_weights, make_no_cache, model_weights, read_metadata,
        read_tensors, read_weights, save_weights, use_own_cache
"""
