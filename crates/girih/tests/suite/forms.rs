//! Tests of programs captured, written, read and run again.

use girih::ir::testing::random_graph;
use girih::{DType, Error, Program, Shape, Tensor, TensorSpec};

fn vector(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

#[track_caller]
fn again(program: &Program) -> Program {
    let bytes = program.to_bytes().unwrap();
    let read = Program::from_bytes(&bytes).unwrap();
    assert_eq!(read.graph(), program.graph());
    assert_eq!(read.to_bytes().unwrap(), bytes);
    read
}

#[test]
fn a_captured_program_repeats_the_recording_and_takes_other_inputs() {
    let (x, w) = (vector(&[1.0, 2.0]), vector(&[3.0, -4.0]).into_parameter().unwrap());
    let y = x.mul(&w).unwrap().add(0.5).unwrap();
    let z = y.sum_all().unwrap();
    let program = again(&Program::capture(&[&y, &z], &[&x]).unwrap());
    assert_eq!(program.inputs().len(), 1);
    assert_eq!(program.parameters()[0].1.to_vec::<f32>().unwrap(), [3.0, -4.0]);
    let out = program.call(&[&x]).unwrap();
    assert!(out[0].is_lazy());
    assert_eq!(out[0].to_vec::<f32>().unwrap(), y.to_vec::<f32>().unwrap());
    assert_eq!(out[1].item::<f32>().unwrap(), z.item::<f32>().unwrap());
    let out = program.call(&[&vector(&[0.0, 1.0])]).unwrap();
    assert_eq!(out[0].to_vec::<f32>().unwrap(), [0.5, -3.5]);
}

#[test]
fn a_program_without_inputs_holds_its_data() {
    let x = vector(&[1.0, 2.0, 3.0]);
    let half = x.mul(0.5).unwrap();
    half.eval().unwrap();
    let y = half.add(&x).unwrap();
    let program = Program::capture(&[&y], &[]).unwrap();
    assert!(program.inputs().is_empty());
    // Evaluated tensors are data of the program; lazy tensors are computed again.
    assert_eq!((program.graph().num_ops(), program.held_bytes()), (1, 24));
    assert_eq!(again(&program).call(&[]).unwrap()[0].to_vec::<f32>().unwrap(), [1.5, 3.0, 4.5]);
}

#[test]
fn random_leaves_of_a_captured_program_draw_the_recorded_numbers() {
    let draws = Tensor::randn([4], DType::F32)
        .unwrap()
        .add(&Tensor::rand([4], DType::F32).unwrap())
        .unwrap();
    let program = again(&Program::capture(&[&draws], &[]).unwrap());
    let expected = draws.to_vec::<f32>().unwrap();
    for _ in 0..2 {
        assert_eq!(program.call(&[]).unwrap()[0].to_vec::<f32>().unwrap(), expected);
    }
    // Random leaves of a program from text have no position in the sequence, so they draw anew.
    let text = Program::from_text(&program.to_text()).unwrap();
    let draw = || text.call(&[]).unwrap()[0].to_vec::<f32>().unwrap();
    assert_ne!(draw(), draw());
}

#[test]
fn inputs_keep_their_order_and_are_checked() {
    let (a, b, c) = (vector(&[1.0]), vector(&[2.0]), vector(&[3.0]));
    let y = c.sub(&a).unwrap();
    let program = again(&Program::capture(&[&y], &[&c, &b, &a]).unwrap());
    let out = program.call(&[&vector(&[10.0]), &b, &vector(&[4.0])]).unwrap();
    assert_eq!(out[0].item::<f32>().unwrap(), 6.0);
    let error = |inputs: &[&Tensor]| program.call(inputs).err().unwrap().to_string();
    assert!(error(&[&a]).contains("takes 3 inputs (%0: f32[1], %1: f32[1], %2: f32[1]), got 1"));
    assert!(
        error(&[&a, &b, &vector(&[1.0, 2.0])])
            .contains("input %2 of the program is f32[1], got f32[2]")
    );
    let both = error(&[&vector(&[1.0, 2.0]), &b, &a.astype(girih::DType::I32).unwrap()]);
    assert!(both.contains("input %0 of the program is f32[1], got f32[2]; input %2"), "{both}");
    assert!(both.contains("of the program is f32[1], got i32[1]"), "{both}");
    assert!(Program::capture(&[&y], &[&a, &a]).is_err());
    // The program starts from its inputs, whatever they were computed from.
    let middle = Program::capture(&[&y.exp().unwrap()], &[&y]).unwrap();
    assert_eq!((middle.graph().len(), middle.inputs().len()), (2, 1));
}

#[test]
fn runtime_constants_of_a_text_program_become_inputs() {
    let text = "Graph:\n  %0 = input([2], f32) {name=\"x\"}\n  %1 = constant([2], f32, runtime)\n  \
                %2 = mul(%0, %1) -> [2]\n  outputs: [%2]";
    let program = Program::from_text(text).unwrap();
    assert_eq!(program.to_text(), text);
    assert_eq!(program.inputs()[0].name, "x");
    assert_eq!(program.inputs()[1].spec, TensorSpec::scalar(DType::F32));
    let scale = Tensor::from_slice(&[3.0f32], Shape::scalar()).unwrap();
    let out = program.call(&[&vector(&[1.0, 2.0]), &scale]).unwrap();
    assert_eq!(out[0].to_vec::<f32>().unwrap(), [3.0, 6.0]);
}

#[test]
fn random_graphs_of_all_ops_compute_the_same_after_a_round_trip() {
    let mut ran = 0;
    for seed in 0..150 {
        let program = Program::of_graph(random_graph(seed, 10));
        let inputs: Vec<Tensor> = program
            .inputs()
            .iter()
            .map(|input| Tensor::ones(input.spec.shape.clone(), input.spec.dtype).unwrap())
            .collect();
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let outputs = |program: &Program| -> Result<Vec<Vec<u8>>, Error> {
            program.call(&inputs)?.iter().map(Tensor::to_bytes).collect()
        };
        // Random leaves without a position draw anew, and indices may be out of range.
        let draws = program.graph().nodes().any(|(_, node)| node.op.is_random());
        match (outputs(&program), outputs(&again(&program))) {
            (Ok(a), Ok(b)) if !draws => {
                assert_eq!(a, b, "{}", program.to_text());
                ran += !a.is_empty() as usize;
            }
            (a, b) => assert_eq!(a.is_ok(), b.is_ok(), "{}", program.to_text()),
        }
    }
    assert!(ran > 40, "{ran}");
}

#[test]
fn a_chain_of_many_nodes_is_written_read_and_recorded_without_recursion() {
    let x = vector(&[0.0]);
    let mut y = x.clone();
    for _ in 0..100_000 {
        y = y.neg().unwrap();
    }
    let program = again(&Program::capture(&[&y], &[&x]).unwrap());
    assert_eq!(program.graph().len(), 100_001);
    let out = program.call(&[&x]).unwrap();
    assert_eq!(Program::from_text(&program.to_text()).unwrap().graph(), program.graph());
    drop(out);
}

#[test]
fn formats_follow_the_content_on_loading_and_the_suffix_on_saving() {
    let folder = std::env::temp_dir().join(format!("girih-forms-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let x = vector(&[1.0]);
    let program = Program::capture(&[&x.exp().unwrap()], &[&x]).unwrap();
    for name in ["a.pfgb", "a.txt", "a.girih"] {
        program.save(folder.join(name)).unwrap();
        assert_eq!(Program::load(folder.join(name)).unwrap().graph(), program.graph());
    }
    let page = folder.join("a.html");
    program.save(&page).unwrap();
    assert!(matches!(Program::load(&page), Err(Error::Record(_))));
    std::fs::write(folder.join("b"), [0xff, 0xfe]).unwrap();
    assert!(
        Program::load(folder.join("b"))
            .err()
            .unwrap()
            .to_string()
            .contains("neither PFGB nor text")
    );
    let missing = Program::load(folder.join("none")).err().unwrap();
    assert!(matches!(missing, Error::Io { kind: std::io::ErrorKind::NotFound, .. }));
    assert!(program.save(folder.join("a.gif")).is_err());
    assert!(!folder.join("a.gif").exists());
    std::fs::remove_dir_all(&folder).unwrap();
}
