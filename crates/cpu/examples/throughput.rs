//! Times of typical kernels at 64 KB and 4 MB per array, on one thread and on all:
//! `cargo run --release -p girih-cpu --example throughput`.

use girih_cpu::{LoadedKernel, Pool};
use girih_exec::Bindings;
use girih_ir::{DType, Literal, OpCode};
use girih_kernel::*;
use smallvec::SmallVec;
use std::time::Instant;

fn access(buffer: u32, strides: &[isize]) -> Access {
    Access {
        buffer: BufferId(buffer),
        dtype: DType::F32,
        offset: 0,
        strides: SmallVec::from_slice(strides),
    }
}

struct Builder(Block);
impl Builder {
    fn op(&mut self, code: OpCode, args: &[Val]) -> Val {
        let args = SmallVec::from_slice(args);
        self.0.push(Inst::Op { code, args, dtype: DType::F32 })
    }
    fn constant(&mut self, x: f64) -> Val {
        self.0.push(Inst::Literal(Literal::from_f64(DType::F32, x)))
    }
}

fn map(name: &str, n: usize, body: impl Fn(&mut Builder, Val, Val) -> Val) -> Kernel {
    let mut b = Builder(Block::default());
    let x = b.0.push(Inst::Load(AccessId(0)));
    let y = b.0.push(Inst::Load(AccessId(1)));
    let value = body(&mut b, x, y);
    Kernel {
        name: name.into(),
        extents: SmallVec::from_slice(&[n]),
        parallel: 1,
        accesses: vec![access(0, &[1]), access(1, &[1])],
        core: Core::Map,
        body: b.0,
        stores: vec![Store { access: access(2, &[1]), value }],
    }
}

fn reduce(
    name: &str,
    extents: &[usize],
    parallel: usize,
    strides: &[isize],
    op: ReduceOp,
) -> Kernel {
    let mut prologue = Block::default();
    let value = prologue.push(Inst::Load(AccessId(0)));
    let mut body = Block::default();
    let core = body.push(Inst::Core { dtype: DType::F32 });
    let out: Vec<isize> = (0..parallel).map(|_| 1).collect();
    Kernel {
        name: name.into(),
        extents: SmallVec::from_slice(extents),
        parallel,
        accesses: vec![access(0, strides)],
        core: Core::Reduce { prologue, value, op, stores: vec![] },
        body,
        stores: vec![Store { access: access(2, &out), value: core }],
    }
}

fn gelu(b: &mut Builder, x: Val, _: Val) -> Val {
    let (c, s) = (b.constant(0.044715), b.constant(0.797_884_560_802_865_4));
    let (half, one) = (b.constant(0.5), b.constant(1.0));
    let square = b.op(OpCode::Mul, &[x, x]);
    let cube = b.op(OpCode::Mul, &[square, x]);
    let scaled = b.op(OpCode::Mul, &[cube, c]);
    let sum = b.op(OpCode::Add, &[x, scaled]);
    let inner = b.op(OpCode::Mul, &[sum, s]);
    let t = b.op(OpCode::Tanh, &[inner]);
    let t = b.op(OpCode::Add, &[t, one]);
    let x = b.op(OpCode::Mul, &[x, half]);
    b.op(OpCode::Mul, &[x, t])
}

fn time(kernel: &Kernel, pool: &Pool, pointers: &[*mut u8]) -> f64 {
    let loaded = LoadedKernel::new(kernel);
    let bindings = Bindings {
        buffers: pointers,
        arguments: &[],
        workspace: std::ptr::null_mut(),
        bounds: None,
    };
    let mut samples: Vec<f64> = (0..60)
        .map(|_| {
            // As before a plan's kernels, so that the workers are awake.
            pool.prepare(u64::MAX);
            let repeats = 20;
            let start = Instant::now();
            for _ in 0..repeats {
                // SAFETY: all buffers hold as many elements as the largest kernel touches.
                unsafe { loaded.run(&bindings, pool) }.expect("no gathers");
            }
            start.elapsed().as_nanos() as f64 / repeats as f64
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn main() {
    let most = 1 << 20;
    let mut buffers: Vec<Vec<f32>> = (0..4)
        .map(|b| (0..most).map(|i| ((i * 7 + b) % 101) as f32 / 50.0 - 1.0).collect())
        .collect();
    let pointers: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr() as *mut u8).collect();
    let (one, all) = (Pool::new(1), Pool::from_env().expect("a number of threads"));
    println!(
        "{:<28} {:>12} {:>12}",
        "ns, median",
        "1 thread",
        format!("{} threads", all.num_threads())
    );
    let show = |kernel: Kernel| {
        let (a, b) = (time(&kernel, &one, &pointers), time(&kernel, &all, &pointers));
        println!("{:<28} {a:>12.0} {b:>12.0}", kernel.name);
    };
    show(map("add of 4 elements", 4, |b, x, y| b.op(OpCode::Add, &[x, y])));
    for (label, n) in [("64 KB", 1 << 14), ("4 MB", 1 << 20)] {
        show(map(&format!("add {label}"), n, |b, x, y| b.op(OpCode::Add, &[x, y])));
        for (name, code) in [
            ("exp", OpCode::Exp),
            ("log", OpCode::Log),
            ("tanh", OpCode::Tanh),
            ("erf", OpCode::Erf),
            ("erfc", OpCode::Erfc),
            ("sin", OpCode::Sin),
        ] {
            show(map(&format!("{name} {label}"), n, |b, x, _| b.op(code, &[x])));
        }
        show(map(&format!("gelu {label}"), n, gelu));
        let (rows, cols) = (n / 1024, 1024);
        show(reduce(&format!("sum {label}"), &[n], 0, &[1], ReduceOp::Sum));
        show(reduce(&format!("row max {label}"), &[rows, cols], 1, &[1024, 1], ReduceOp::Max));
        show(reduce(&format!("row sum {label}"), &[rows, cols], 1, &[1024, 1], ReduceOp::Sum));
        show(reduce(&format!("column sum {label}"), &[cols, rows], 1, &[1, 1024], ReduceOp::Sum));
    }
    for n in [128usize, 512, 1024] {
        let s = n as isize;
        let mut body = Block::default();
        let value = body.push(Inst::Core { dtype: DType::F32 });
        let (lhs, rhs) = (access(0, &[s, 0, 1]), access(1, &[0, 1, s]));
        let core = Core::Gemm { lhs, rhs, dtype: DType::F32, rows: 1, columns: 1 };
        let stores = vec![Store { access: access(2, &[s, 1]), value }];
        let extents = SmallVec::from_slice(&[n, n, n]);
        let name = format!("matmul {n}");
        show(Kernel { name, extents, parallel: 2, accesses: vec![], core, body, stores });
    }
}
