//! Horizontal fusion: updates of an optimiser, and small kernels.

use super::eval;
use super::*;
use crate::ir::{Core, Kernel, KernelProgram};
use crate::place::donations;

fn kernels(graph: &Graph) -> KernelProgram {
    lower(graph, FusionOptions::ALL, &Target::CPU).expect("the graph is primitive")
}

/// The number of parts of each kernel; 0 for a kernel without parts.
fn parts(program: &KernelProgram) -> Vec<usize> {
    let of = |kernel: &Kernel| match &kernel.core {
        Core::Rows(rows) => rows.parts.len(),
        _ => 0,
    };
    program.kernels.iter().map(of).collect()
}

/// `m = 0.9 m + g` and `p - m` of parameters of these shapes.
fn momentum(shapes: &[[usize; 2]]) -> Graph {
    let mut b = GraphBuilder::default();
    let mut outputs = Vec::new();
    for &shape in shapes {
        let [p, g, m] = [(); 3].map(|()| b.input(TensorSpec::new(shape, DType::F64)));
        let keep = b.scalar_like(m, 0.9);
        let kept = b.mul(m, keep).unwrap();
        let m = b.add(kept, g).unwrap();
        outputs.extend([b.sub(p, m).unwrap(), m]);
    }
    b.finish(outputs)
}

fn numbers(n: usize) -> eval::Data {
    (0..n).map(|i| (i * 7919 % 1000) as f64 / 500.0 - 1.0).collect()
}

#[test]
fn updates_of_many_parameters_are_one_kernel() {
    let shapes = [[3, 5], [1, 1], [300, 100], [7, 64], [1, 30]];
    let g = momentum(&shapes);
    let (fused, unfused) =
        (kernels(&g), lower(&g, VERTICAL, &Target::CPU).expect("the graph is primitive"));
    assert_eq!((parts(&fused), unfused.kernels.len()), (vec![5], 5), "{fused}");
    let sizes = shapes.iter().flat_map(|[m, n]| [m * n; 3]);
    let arguments: Vec<eval::Data> = sizes.map(numbers).collect();
    assert_eq!(eval::program(&fused, &arguments), eval::program(&unfused, &arguments));
    // Each result is written in place of the operand that it updates.
    assert_eq!(donations(&fused).len(), 10, "{fused}");
}

#[test]
fn an_operand_of_two_updates_is_not_overwritten() {
    for both in [false, true] {
        let mut b = GraphBuilder::default();
        let x = input(&mut b, [40, 50]);
        let t = b.transpose(x).unwrap();
        let (y, z) = (b.exp(t).unwrap(), b.neg(x).unwrap());
        let program = kernels(&b.finish(if both { vec![y, z] } else { vec![z] }));
        assert_eq!(parts(&program), [if both { 2 } else { 0 }], "{program}");
        // The two parts run concurrently, so none may overwrite an operand of the other.
        assert_eq!(donations(&program).len(), !both as usize, "{program}");
    }
}

#[test]
fn a_small_kernel_that_reads_a_result_runs_after_its_producer() {
    let g = graph(|b| {
        let x = input(b, [100, 100]);
        let y = b.exp(x)?;
        let t = b.transpose(y)?;
        Ok([y, b.add(x, t)?])
    });
    assert_eq!(parts(&kernels(&g)), [0, 0], "as maps of many elements");
    let g = graph(|b| {
        let x = input(b, [10, 10]);
        let y = b.exp(x)?;
        let t = b.transpose(y)?;
        Ok([y, b.add(x, t)?])
    });
    let small = kernels(&g);
    assert_eq!(parts(&small), [2], "one after the other: {small}");
    let unfused = lower(&g, VERTICAL, &Target::CPU).expect("the graph is primitive");
    let x = [numbers(100)];
    assert_eq!(eval::program(&small, &x), eval::program(&unfused, &x));
}

#[test]
fn small_kernels_are_grouped_and_large_kernels_are_not() {
    let sums = |rows: usize| {
        let mut b = GraphBuilder::default();
        let outputs: Vec<NodeId> = (0..3)
            .map(|_| {
                let x = input(&mut b, [rows, 10]);
                b.sum(x, AxisSet::one(0), false).unwrap()
            })
            .collect();
        parts(&kernels(&b.finish(outputs)))
    };
    assert_eq!(sums(20), [3]);
    assert_eq!(sums(2000), [0, 0, 0], "threads share each");
}
