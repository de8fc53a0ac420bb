//! Which ops are fused into one kernel.

use super::*;
use crate::ir::{BufferKind, Core};
use girih_ir::ops::{PadDim, SliceDim};

#[track_caller]
fn check(graph: &Graph, expected: &[&str]) {
    let program = lower(graph, VERTICAL, &Target::CPU).unwrap();
    let names: Vec<&str> = program.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, expected, "{program}");
}

#[test]
fn patterns_of_elementwise_ops_are_one_kernel_with_their_names() {
    check(
        &graph(|b| {
            let (x, y) = (input(b, [4]), input(b, [4]));
            let s = b.add(x, y)?;
            Ok([relu(b, s)?])
        }),
        &["fused_add_relu"],
    );
    check(
        &graph(|b| {
            let (x, y) = (input(b, [4]), input(b, [4]));
            let s = b.mul(x, y)?;
            Ok([sigmoid(b, s)?])
        }),
        &["fused_mul_sigmoid"],
    );
    for swapped in [false, true] {
        let fma = graph(|b| {
            let (x, y, z) = (input(b, [4]), input(b, [4]), input(b, [4]));
            let s = b.mul(x, y)?;
            Ok([if swapped { b.add(z, s)? } else { b.add(s, z)? }])
        });
        check(&fma, &["fused_fma"]);
    }
}

#[test]
fn a_single_op_keeps_its_name() {
    check(
        &graph(|b| {
            let x = input(b, [4]);
            Ok([b.exp(x)?])
        }),
        &["exp"],
    );
    check(
        &graph(|b| {
            let x = input(b, [4]);
            Ok([sigmoid(b, x)?])
        }),
        &["sigmoid"],
    );
    check(
        &graph(|b| {
            let x = input(b, [2, 3]);
            Ok([b.transpose(x)?])
        }),
        &["permute"],
    );
}

#[test]
fn a_linear_layer_is_one_kernel_with_any_activation() {
    let layer = |act: fn(&mut GraphBuilder, NodeId) -> Result<NodeId>| {
        graph(|b| {
            let (x, w, bias) = (input(b, [8, 4]), input(b, [4, 6]), input(b, [6]));
            let y = b.matmul(x, w)?;
            let y = b.add(y, bias)?;
            Ok([act(b, y)?])
        })
    };
    check(&layer(relu), &["fused_matmul_add_relu"]);
    check(&layer(sigmoid), &["fused_matmul_add_sigmoid"]);
    check(&layer(gelu), &["fused_matmul_add_gelu"]);
}

#[test]
fn a_gemm_and_its_activation_are_one_kernel_named_after_both() {
    let activated = |code: OpCode, attrs: Attrs| {
        let g = graph(|b| {
            let (x, w) = (input(b, [8, 4]), input(b, [4, 6]));
            let y = b.matmul(x, w)?;
            Ok([b.emit(Op::new(code, attrs), &[y])?])
        });
        g.decomposed().unwrap().unwrap()
    };
    check(&activated(OpCode::Relu, Attrs::None), &["fused_matmul_relu"]);
    // The exact form (by erf) and the approximate one (by tanh) are not interchanged.
    check(&activated(OpCode::Gelu, Attrs::Approximate(false)), &["fused_matmul_gelu"]);
    check(&activated(OpCode::Gelu, Attrs::Approximate(true)), &["fused_matmul_gelu"]);
}

#[test]
fn a_cast_of_integers_is_part_of_the_gemms_that_widen_them() {
    let of = |from: DType, to: DType, keep: bool| {
        graph(|b| {
            let (x, w) =
                (b.input(TensorSpec::new([6, 8], from)), b.input(TensorSpec::new([12, 5], to)));
            let wide = b.cast(x, to)?;
            let y = b.transpose(wide)?;
            let y = b.reshape(y, [4, 12])?;
            let y = b.matmul(y, w)?;
            Ok([y, if keep { wide } else { y }])
        })
    };
    check(&of(DType::I8, DType::I32, false), &["fused_cast_matmul"]);
    check(&of(DType::U8, DType::I16, false), &["fused_cast_matmul"]);
    // Casts that narrow or change the kind of number are kernels before the GEMM, and so are casts
    // whose result is an output.
    check(&of(DType::I32, DType::I8, false), &["cast", "matmul"]);
    check(&of(DType::U8, DType::I8, false), &["cast", "matmul"]);
    check(&of(DType::BF16, DType::F32, false), &["cast", "matmul"]);
    check(&of(DType::I8, DType::I32, true), &["cast", "matmul"]);
}

#[test]
fn a_layout_is_changed_only_where_strides_cannot_say_it() {
    // A transposed, sliced, flipped or broadcast operand is read in place ...
    check(
        &graph(|b| {
            let (x, y) = (input(b, [6, 8]), input(b, [6, 5]));
            let x = b.transpose(x)?;
            let x = b.slice_axis(x, 0, 2, 4)?;
            let x = b.emit(Op::new(OpCode::Flip, Attrs::axes(AxisSet::one(1), false)), &[x])?;
            Ok([b.matmul(x, y)?])
        }),
        &["matmul"],
    );
    // ... as is one whose rows and columns are merged, if the dimensions can be split: here twelve
    // K indices into two by six.
    check(
        &graph(|b| {
            let (x, y) = (input(b, [6, 8]), input(b, [12, 5]));
            let x = b.transpose(x)?;
            let x = b.reshape(x, [4, 12])?;
            Ok([b.matmul(x, y)?])
        }),
        &["matmul"],
    );
    // Without a common split, the operand has no strides: one copy, of that operand only.
    check(
        &graph(|b| {
            let (x, y) = (input(b, [6, 8]), input(b, [8, 5]));
            let x = b.transpose(x)?;
            let x = b.reshape(x, [6, 8])?;
            Ok([b.matmul(x, y)?])
        }),
        &["permute", "matmul"],
    );
}

#[test]
fn batches_of_a_linear_layer_become_rows() {
    let g = graph(|b| {
        let (x, w, bias) = (input(b, [2, 8, 4]), input(b, [4, 6]), input(b, [6]));
        let y = b.matmul(x, w)?;
        Ok([b.add(y, bias)?])
    });
    let program = lower(&g, VERTICAL, &Target::CPU).unwrap();
    assert_eq!(program.kernels[0].extents.as_slice(), &[16, 6, 4]);
    // The same with explicit reshapes, as front ends write it.
    let g = graph(|b| {
        let (x, w) = (input(b, [2, 8, 4]), input(b, [4, 6]));
        let (bias, rest) = (input(b, [6]), input(b, [2, 8, 6]));
        let x = b.reshape(x, [16, 4])?;
        let y = b.matmul(x, w)?;
        let y = b.reshape(y, [2, 8, 6])?;
        let y = b.add(y, bias)?;
        Ok([b.add(y, rest)?])
    });
    let program = lower(&g, VERTICAL, &Target::CPU).unwrap();
    assert_eq!(program.kernels.len(), 1);
    assert_eq!(program.kernels[0].extents.as_slice(), &[16, 6, 4]);
}

#[test]
fn transposed_and_broadcast_operands_of_a_gemm_are_not_copied() {
    let g = graph(|b| {
        let (x, w) = (input(b, [3, 8, 4]), input(b, [6, 4]));
        let w = b.transpose(w)?;
        let w = b.broadcast_to(w, [3, 4, 6])?;
        Ok([b.matmul(x, w)?])
    });
    check(&g, &["matmul"]);
}

#[test]
fn heads_of_attention_are_read_in_place() {
    let g = graph(|b| {
        let heads = |b: &mut GraphBuilder| {
            let x = input(b, [2, 5, 12]);
            let x = b.reshape(x, [2, 5, 3, 4])?;
            b.permute(x, &[0, 2, 1, 3])
        };
        let (q, k, v) = (heads(b)?, heads(b)?, heads(b)?);
        let k = b.transpose(k)?;
        let s = b.matmul(q, k)?;
        let scale = b.scalar_like(s, 0.5);
        let s = b.mul(s, scale)?;
        let p = softmax(b, s)?;
        let o = b.matmul(p, v)?;
        let o = b.permute(o, &[0, 2, 1, 3])?;
        Ok([b.reshape(o, [2, 5, 12])?])
    });
    check(
        &g,
        &[
            "fused_matmul_mul",
            "reduce_max",
            "fused_sub_exp_reduce_sum",
            "fused_sub_exp_div",
            "matmul",
            "permute",
        ],
    );
}

#[test]
fn softmax_is_three_kernels() {
    let g = graph(|b| {
        let x = input(b, [8, 4]);
        Ok([softmax(b, x)?])
    });
    check(&g, &["reduce_max", "fused_sub_exp_reduce_sum", "fused_sub_exp_div"]);
}

#[test]
fn layer_norm_is_three_kernels() {
    let g = graph(|b| {
        let (x, w, bias) = (input(b, [8, 4]), input(b, [4]), input(b, [4]));
        Ok([layer_norm(b, x, w, bias)?])
    });
    let kernels = ["fused_reduce_sum_div", "fused_sub_mul_reduce_sum_div_add_rsqrt"];
    check(&g, &[kernels[0], kernels[1], "fused_sub_mul_fma"]);
}

#[test]
fn the_mean_of_a_product_is_one_kernel() {
    for keepdims in [false, true] {
        let g = graph(|b| {
            let (x, y) = (input(b, [8, 4]), input(b, [8, 4]));
            let p = b.mul(x, y)?;
            Ok([mean(b, p, AxisSet::all(2), keepdims)?])
        });
        check(&g, &["fused_mul_reduce_sum_div"]);
    }
}

#[test]
fn an_adam_step_is_one_kernel_per_parameter() {
    let g = graph(|b| {
        let mut outputs = Vec::new();
        let (lr, beta) = (parameter(b), b.scalar(DType::F32, 0.9));
        for _ in 0..2 {
            let [p, grad, m, v] = [(); 4].map(|()| input(b, [8, 4]));
            let rest = b.scalar(DType::F32, 0.1);
            let (old, new) = (b.mul(m, beta)?, b.mul(grad, rest)?);
            let m = b.add(old, new)?;
            let square = b.mul(grad, grad)?;
            let (old, new) = (b.mul(v, beta)?, b.mul(square, rest)?);
            let v = b.add(old, new)?;
            let root = b.sqrt(v)?;
            let ratio = b.div(m, root)?;
            let step = b.mul(ratio, lr)?;
            outputs.extend([b.sub(p, step)?, m, v]);
        }
        Ok([0, 1, 2, 3, 4, 5].map(|i| outputs[i]))
    });
    let program = lower(&g, VERTICAL, &Target::CPU).unwrap();
    assert_eq!(program.kernels.len(), 2, "{program}");
    assert!(program.kernels.iter().all(|k| k.stores.len() == 3 && k.extents.len() == 1));
}

#[test]
fn concat_and_pad_compute_their_operands_in_place() {
    let g = graph(|b| {
        let (x, y) = (input(b, [2, 3]), input(b, [2, 3]));
        let (e, n) = (b.exp(x)?, b.neg(y)?);
        Ok([b.emit(Op::new(OpCode::Concat, Attrs::Axis(1)), &[e, n])?])
    });
    check(&g, &["fused_exp_concat", "fused_neg_concat"]);
    let g = graph(|b| {
        let x = input(b, [3]);
        let e = b.exp(x)?;
        let dim = PadDim { low: 1, high: 0, interior: 1 };
        Ok([b.pad(e, vec![dim], girih_ir::Literal::from_f64(DType::F32, 0.0))?])
    });
    check(&g, &["pad_fill", "fused_exp_pad"]);
}

#[test]
fn gathers_fuse_and_scatters_compute_their_updates() {
    let g = graph(|b| {
        let (x, i) = (input(b, [9, 4]), b.input(TensorSpec::new([3], DType::I64)));
        let t = b.emit(Op::new(OpCode::Take, Attrs::Axis(0)), &[x, i])?;
        let r = relu(b, t)?;
        let scatter = Op::new(OpCode::ScatterAdd, Attrs::Scatter { axis: 0, size: 9 });
        let e = b.exp(t)?;
        Ok([r, b.emit(scatter, &[i, e])?])
    });
    check(&g, &["fused_take_relu", "fused_take_exp_scatter_add"]);
}

#[test]
fn empty_results_need_no_kernel_and_empty_reductions_are_constants() {
    check(
        &graph(|b| {
            let x = input(b, [0, 4]);
            Ok([b.exp(x)?])
        }),
        &[],
    );
    let g = graph(|b| {
        let x = input(b, [0, 4]);
        let s = b.sum(x, AxisSet::one(0), false)?;
        Ok([b.exp(s)?])
    });
    check(&g, &["exp"]);
    assert_eq!(lower(&g, VERTICAL, &Target::CPU).unwrap().kernels[0].core, Core::Map);
}

#[test]
fn outputs_share_buffers_where_they_are_reshapes() {
    let g = graph(|b| {
        let x = input(b, [2, 3]);
        let _scalar = parameter(b);
        let e = b.exp(x)?;
        Ok([x, b.reshape(x, [6])?, e, b.reshape(e, [6])?, b.transpose(x)?])
    });
    let program = lower(&g, VERTICAL, &Target::CPU).unwrap();
    let o = &program.outputs;
    assert_eq!((o[0], o[2]), (o[1], o[3]));
    assert_eq!(program.buffers[o[0].0 as usize].kind, BufferKind::Argument(0));
    assert_eq!(program.kernels.len(), 2);
}

#[test]
fn arguments_are_counted_with_scalars_and_keys() {
    let g = graph(|b| {
        let s = parameter(b);
        let r = b.leaf(OpCode::RandomUniform.into(), TensorSpec::new([4], DType::F32));
        let x = input(b, [4]);
        let y = b.mul(r, s)?;
        Ok([b.add(y, x)?])
    });
    let text = lower(&g, VERTICAL, &Target::CPU).unwrap().to_string();
    assert!(text.contains("b0 = argument 2: f32[4]"), "{text}");
    assert!(text.contains("random_uniform(argument 1, i0)") && text.contains("= argument 0: f32"));
}

/// On a mesh, each processor slices its part of a draw.
#[test]
fn a_slice_of_a_draw_draws_only_the_slice() {
    let g = graph(|b| {
        let r = b.leaf(OpCode::RandomNormal.into(), TensorSpec::new([8, 1024], DType::F32));
        let dim = |start, size| SliceDim { start, size, step: 1 };
        Ok([b.slice(r, vec![dim(2, 2), dim(256, 256)])?])
    });
    let text = lower(&g, VERTICAL, &Target::CPU).unwrap().to_string();
    assert!(text.contains("random_normal(argument 0, 2304 + 1024*i0 + i1)"), "{text}");
    assert!(!text.contains("8192") && !text.contains("[8, 1024]"), "{text}");
}

#[test]
fn a_contiguous_kernel_has_one_dimension_and_a_scalar_one_none() {
    let g = graph(|b| {
        let (x, s) = (input(b, [2, 1, 3, 4]), input(b, []));
        Ok([b.exp(x)?, b.exp(s)?])
    });
    let program = lower(&g, VERTICAL, &Target::CPU).unwrap();
    let extents: Vec<_> = program.kernels.iter().map(|k| k.extents.to_vec()).collect();
    assert_eq!(extents, [vec![24], vec![]]);
}

#[test]
fn slices_and_flips_are_strides() {
    let g = graph(|b| {
        let x = input(b, [8]);
        let s = b.slice(x, vec![SliceDim { start: 1, size: 3, step: 2 }])?;
        let f = b.emit(Op::new(OpCode::Flip, Attrs::axes(AxisSet::one(0), false)), &[s])?;
        Ok([b.neg(f)?])
    });
    let program = lower(&g, VERTICAL, &Target::CPU).unwrap();
    assert!(program.to_string().contains("load b0[5 - 2*i0]"), "{program}");
}

#[test]
fn a_long_chain_is_cut_into_bounded_kernels() {
    let g = graph(|b| {
        let mut x = input(b, [4]);
        for _ in 0..10_000 {
            x = b.neg(x)?;
        }
        Ok([x])
    });
    let program = lower(&g, VERTICAL, &Target::CPU).unwrap();
    assert!((78..100).contains(&program.kernels.len()), "{}", program.kernels.len());
}

#[test]
fn a_composite_is_an_error_that_names_it() {
    let g = graph(|b| {
        let x = input(b, [4]);
        Ok([b.relu(x)?])
    });
    let err = lower(&g, VERTICAL, &Target::CPU).unwrap_err();
    assert_eq!(err.to_string(), "%1 = relu is a composite; decompose the graph before lowering it");
}

#[test]
fn without_options_every_op_is_a_kernel() {
    let g = graph(|b| {
        let x = input(b, [8, 4]);
        Ok([softmax(b, x)?])
    });
    let program = lower(&g, FusionOptions::NONE, &Target::CPU).unwrap();
    let names: Vec<&str> = program.kernels.iter().map(|k| k.name.as_str()).collect();
    assert_eq!(names, ["reduce_max", "sub", "exp", "reduce_sum", "div"]);
}

#[test]
fn windows_are_strided_accesses_to_their_operand() {
    use girih_ir::ops::window::WindowDim;
    let dim = |extent| WindowDim { extent, size: 3, step: 2, dilation: 1 };
    // A pooling of an elementwise op is one reduction over strided loads.
    let pooling = graph(|b| {
        let x = input(b, [2, 9, 7]);
        let x = relu(b, x)?;
        let windows = b.windows(x, vec![dim(9), dim(7)])?;
        Ok([b.max(windows, [3, 4].into_iter().collect(), false)?])
    });
    let program = lower(&pooling, VERTICAL, &Target::CPU).unwrap();
    let [kernel] = &program.kernels[..] else { panic!("one kernel\n{program}") };
    assert_eq!(kernel.extents.as_slice(), &[2, 4, 3, 3, 3]);
    assert_eq!(kernel.accesses[0].strides.as_slice(), &[63, 14, 2, 7, 1]);
}

#[test]
fn a_large_value_is_recomputed_where_its_operands_are_read_anyway() {
    // A gate in the forward half of a step, and in the backward half with all its operands.
    let exponentials = |rows: usize, whole: bool| {
        let g = graph(|b| {
            let (x, w, ct) = (input(b, [rows, 8]), input(b, [8, 512]), input(b, [rows, 8]));
            let h = b.matmul(x, w)?;
            let gate = sigmoid(b, h)?;
            let y = b.mul(h, gate)?;
            let back = b.matmul(ct, w)?;
            let scaled = b.mul(back, gate)?;
            let back = if whole { b.mul(scaled, h)? } else { scaled };
            Ok([y, back])
        });
        lower(&g, VERTICAL, &Target::CPU).unwrap().to_string().matches("exp(").count()
    };
    assert_eq!(exponentials(512, true), 2, "the operand is read anyway");
    assert_eq!(exponentials(512, false), 1, "reading the gate is cheaper than computing it");
    assert_eq!(exponentials(16, true), 1, "it stays in the caches");
}
