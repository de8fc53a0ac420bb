//! Parameters follow from the machine, and may be set separately.

use super::*;

#[test]
fn parameters_grow_with_the_caches_within_bounds() {
    let of = |l2_bytes, l3_bytes| Tuning::of(&Machine { l2_bytes, l3_bytes, ..Machine::default() });
    let (small, zen, large) = (of(1, 1), of(1 << 20, 32 << 20), of(1 << 30, 1 << 34));
    assert_eq!(zen.row_elements, 1 << 16);
    assert_eq!(zen.gemm_block_bytes, 1 << 19);
    assert_eq!(zen.streamed_bytes, 32 << 20);
    for ((name, least), (_, most)) in small.entries().into_iter().zip(large.entries()) {
        let lowest = usize::from(!OPTIONAL.contains(&name));
        assert!((lowest..=MAX).contains(&least) && least <= most && most <= MAX, "{name}");
    }
}

#[test]
fn results_are_streamed_unless_that_is_slower() {
    let of = |stream_mbps| {
        let machine = Machine::default();
        let memory = Memory { stream_mbps, ..machine.memory };
        Tuning::of(&Machine { memory, ..machine }).streamed_bytes
    };
    let write_mbps = Machine::default().memory.write_mbps;
    assert_eq!((of(write_mbps / 2), of(write_mbps)), (MAX, 16 << 20));
}

#[test]
fn single_parameters_are_set_by_name() {
    let mut tuning = Tuning::of(&Machine::default());
    let before = tuning.clone();
    tuning.set("").expect("nothing is set");
    assert_eq!(tuning, before);
    tuning.set(" chunk_ns = 77, spin_ns=1 ,").expect("both are parameters");
    assert_eq!((tuning.chunk_ns, tuning.spin_ns), (77, 1));
    tuning.set("touched_bytes=0,early_bytes=0").expect("both may be zero");
    assert_eq!((tuning.touched_bytes, tuning.early_bytes), (0, 0));
    let Tuning { touched_bytes, early_bytes, .. } = before;
    let tuning = Tuning { touched_bytes, early_bytes, ..tuning };
    assert_eq!(Tuning { chunk_ns: before.chunk_ns, spin_ns: before.spin_ns, ..tuning }, before);
}

#[test]
fn an_invalid_setting_is_named() {
    let mut tuning = Tuning::of(&Machine::default());
    for text in [
        "chunk",
        "chunk_ns=",
        "chunk_ns=0",
        "chunk_ns=-4",
        "chunk_ns=1e3",
        "other=3",
        "chunk_ns=99999999999999999999",
        "spin_ns=2147483649",
        "=",
        "chunk_ns==4",
    ] {
        let error = tuning.set(&format!("split_work_ns=1,{text}")).expect_err(text);
        assert_eq!(error.text, text);
        assert!(error.to_string().contains("row_elements"), "{error}");
    }
}
