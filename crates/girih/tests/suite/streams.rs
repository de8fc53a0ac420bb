//! Tests of streams and events of the facade.

use girih::{
    Event, Result, Stream, StreamScope, Tensor, TensorState, async_eval, eval, synchronize,
};

fn product(n: usize) -> Result<Tensor> {
    let x = Tensor::from_slice(&vec![0.5f32; n * n], [n, n])?;
    x.matmul(&x)
}

#[test]
fn a_stream_scope_restores_the_previous_stream() -> Result<()> {
    let (outer, inner) = (Stream::new(0)?, Stream::new(-1)?);
    let own = Stream::of_thread(outer.device())?;
    assert_eq!((Stream::current()?, Stream::default_stream()?.index()), (own.clone(), 0));
    {
        let _outer = StreamScope::new(&outer);
        {
            let _inner = StreamScope::new(&inner);
            assert_eq!(Stream::current()?, inner);
        }
        assert_eq!(Stream::current()?, outer);
    }
    assert_eq!(Stream::current()?, own);
    Ok(())
}

#[test]
fn tensors_cross_streams_and_events_order_them() -> Result<()> {
    let (first, second) = (Stream::new(0)?, Stream::new(0)?);
    let (start, end) = (Event::new(), Event::new());
    first.record(&start);
    let x = product(97)?;
    {
        let _scope = StreamScope::new(&first);
        async_eval([&x])?;
    }
    first.record(&end);
    second.wait(&end);
    let y = &x * 2.0;
    {
        let _scope = StreamScope::new(&second);
        eval([&y])?;
    }
    assert_eq!(y.to_vec::<f32>()?[5], 97.0 / 2.0);
    end.synchronize()?;
    assert!(start.elapsed_ms(&end)? > 0.0);
    synchronize(None)?;
    assert!(first.query() && second.query());
    assert_eq!(x.state(), TensorState::Available);
    Ok(())
}
