"""Names of NumPy, PyTorch and JAX that have no equivalent here, with the reason, which is the text
of the AttributeError."""

from __future__ import annotations

__all__ = ["DECLINED", "PATTERNS"]

#: Names that are declined, by the reason. They are declined in every place.
DECLINED: dict[str, str] = {
    "there are no dates; NumPy has them": """
        busday_count busday_offset datetime_as_string datetime_data is_busday isnat
    """,
    "floating-point errors are silent; gr.debug_nans looks for them": """
        geterr geterrcall seterr seterrcall set_flush_denormal is_anomaly_enabled
        is_anomaly_check_nan_enabled
    """,
    "it is about NumPy's own build and buffers": """
        get_include getbufsize setbufsize test compiled_with_cxx11_abi get_file_path
    """,
    "tensors are dense; SciPy has sparse matrices, which multiply tensors": """
        ccol_indices ccol_indices_copy coalesce col_indices col_indices_copy crow_indices
        crow_indices_copy dense_dim indices_copy is_coalesced is_sparse is_sparse_csr
        resize_as_sparse_ row_indices row_indices_copy saddmm sparse_bsc_tensor sparse_bsr_tensor
        sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor sparse_dim
        sparse_mask sparse_resize_ sparse_resize_and_clear_ sspaddmm to_sparse to_sparse_bsc
        to_sparse_bsr to_sparse_coo to_sparse_csc to_sparse_csr values_copy
    """,
    "tensors are not quantised; gr.amp.autocast computes in half precision": """
        choose_qparams_optimized dequantize empty_quantized fake_quantize_per_channel_affine
        fake_quantize_per_tensor_affine fused_moving_avg_obs_fake_quant int_repr is_quantized
        q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point
        qscheme quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic
    """,
    "products of blocks with scales of their own are not supported": """
        scaled_addmm scaled_addmm_ scaled_dot scaled_dot_general scaled_grouped_mm scaled_matmul
        scaled_mm
    """,
    "groups of a size that varies have no product of their own; multiply each, or pad them": """
        ragged_all_to_all ragged_dot_general
    """,
    "it is a step of PyTorch's own implementation": """
        batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt
        batch_norm_gather_stats batch_norm_gather_stats_with_counts batch_norm_stats
        batch_norm_update_stats classproperty fork hash_tensor import_ir_module
        import_ir_module_from_buffer merge_type_from_type_comment parse_ir parse_schema
        parse_type_comment prepare_multiprocessing_environment
        profiler_allow_cudagraph_cupti_lazy_reinit_cuda12 unify_type_list assert_int_or_pair
        boolean_dispatch handle_torch_function has_torch_function has_torch_function_unary
        has_torch_function_variadic Optional as_subclass to_padded_tensor to_mkldnn
        get_device_module is_warn_always_enabled
    """,
    "there is one mode: results have the same bits in every run": """
        get_deterministic_debug_mode set_deterministic_debug_mode
        is_deterministic_algorithms_warn_only_enabled
    """,
    "a device is its name, `x.device`": """
        ipu is_ipu is_maia is_meta is_mkldnn is_mps is_mtia is_nested is_vulkan is_vulkan_available
        is_xla is_xpu mtia xpu
    """,
    "it describes how XLA lays out an op; functions of gr have no such numbers": """
        ConvGeneralDilatedDimensionNumbers DotDimensionNumbers PrecisionLike conv_dimension_numbers
        conv_general_permutations conv_general_shape_tuple conv_shape_tuple
        conv_transpose_shape_tuple padtype_to_pads reduce_window_shape_tuple create_token dce_sink
    """,
    "only SciPy has it; gr.pure_callback calls it in the middle of a program": """
        airy_ai bessel_j0 bessel_j1 bessel_jn bessel_y0 bessel_y1 dawsn exp1 expi expn fresnel
        hyp1f1 hyp2f1 modified_bessel_k0 modified_bessel_k1 owens_t scaled_modified_bessel_k0
        scaled_modified_bessel_k1 sici spence spherical_bessel_j0 sph_harm_y wofz
    """,
    "collectives are those of gr.vmap with axis_name, which has no such one": """
        pbroadcast pcast precv psend pswapaxes
    """,
}  # fmt: skip

#: Names that are declined, or have a hint, by their form: a regular expression, whether the name is
#: declined, and the text, in which \\1 is the group of the expression.
PATTERNS: list[tuple[str, bool, str]] = [
    (r"(?:cudnn|miopen|mkldnn)_\w+", True, "it is a routine of a vendor's library"),
    (
        r"(?:fbgemm|quantized)_\w+",
        True,
        "tensors are not quantised; gr.amp.autocast computes in half precision",
    ),
    (r"sym_\w+", True, "symbolic sizes of compiled functions (gr.Dim) compute as ints do"),
    (
        r"(?:get|set|is)_autocast_\w+|autocast_(?:in|de)crement_nesting|clear_autocast_cache",
        True,
        "autocasting is the scope gr.amp.autocast, not a state",
    ),
]
