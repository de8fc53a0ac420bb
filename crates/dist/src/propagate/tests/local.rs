//! An op computed in parts is the op: each device computes on its shards of the operands as if they
//! were all, and has its shard of the result.

use super::*;
use crate::ownership::rectangles;
use crate::rect::Rect;
use girih_ir::Sharding;

/// The op of factors: the product of the operands' elements, added up over reduced factors. `sizes`
/// are those of the factors; a tensor is row-major.
fn compute(factors: &Factors, sizes: &[usize], operands: &[Vec<i64>]) -> Vec<i64> {
    let place = |dims: &[AxisFactors], index: &[usize]| {
        dims.iter().flatten().fold(0, |at, &f| at * sizes[f] + index[f])
    };
    let len: usize = factors.result().iter().flatten().map(|&f| sizes[f]).product();
    let mut result = vec![0; len];
    for number in 0..sizes.iter().product() {
        let mut rest: usize = number;
        let mut index = vec![0; sizes.len()];
        for (at, &size) in index.iter_mut().zip(sizes).rev() {
            (*at, rest) = (rest % size, rest / size);
        }
        let product: i64 = factors
            .operands()
            .iter()
            .zip(operands)
            .map(|(dims, values)| values[place(dims, &index)])
            .product();
        result[place(factors.result(), &index)] += product;
    }
    result
}

/// A rectangle of a row-major tensor, row-major.
fn part_of(values: &[i64], shape: &[usize], rect: &Rect) -> Vec<i64> {
    let mut found = vec![0];
    for (axis, &size) in shape.iter().enumerate() {
        let range = rect.start[axis]..rect.start[axis] + rect.extent[axis];
        let longer = |&at: &usize| range.clone().map(move |i| at * size + i).collect::<Vec<_>>();
        found = found.iter().flat_map(longer).collect();
    }
    found.into_iter().map(|at| values[at]).collect()
}

fn shape_of(dims: &[AxisFactors], sizes: &[usize]) -> Vec<usize> {
    dims.iter().map(|dim| dim.iter().map(|&f| sizes[f]).product()).collect()
}

/// The sizes of the factors of a device's part of the call, in which a factor is cut by its axes.
fn local_sizes(factors: &Factors, sizes: &[usize], shapes: &[Vec<usize>]) -> Vec<usize> {
    let mut local = vec![None; sizes.len()];
    let tensors = factors.operands().iter().map(|dims| &dims[..]).chain([factors.result()]);
    for (dims, shape) in tensors.zip(shapes) {
        for (dim, &extent) in dims.iter().zip(shape) {
            // The minor factors are cut only if the major ones are cut into single elements.
            let mut rest = extent;
            for (i, &f) in dim.iter().enumerate() {
                let behind: usize = dim[i + 1..].iter().map(|&g| sizes[g]).product();
                let own = if i + 1 == dim.len() { rest } else { (rest / behind).max(1) };
                assert!(local[f].is_none_or(|known| known == own), "{factors} {shapes:?}");
                local[f] = Some(own);
                rest /= own.max(1);
            }
        }
    }
    local.into_iter().map(|size| size.expect("a tensor has each factor")).collect()
}

fn check(rule: &str, sizes: &[usize], specs: &[P]) {
    let factors = Factors::parse(rule).unwrap();
    let shapes: Vec<Vec<usize>> =
        factors.operands().iter().map(|dims| shape_of(dims, sizes)).collect();
    let result = shape_of(factors.result(), sizes);
    let texts: Vec<String> = specs.iter().map(P::to_string).collect();
    let operands: Vec<(&[usize], &str)> =
        shapes.iter().zip(&texts).map(|(shape, text)| (&shape[..], &text[..])).collect();
    let given = Given::new(rule, &operands, &result);
    let step = given.run(None).unwrap();
    let values: Vec<Vec<i64>> = (1..)
        .zip(&shapes)
        .map(|(n, shape)| {
            (0..shape.iter().product()).map(|at: usize| (at as i64 * 37 + n) % 11).collect()
        })
        .collect();
    let whole = compute(&factors, sizes, &values);
    let shards = |spec: &P, shape: &[usize]| {
        let sharding = Sharding::new(given.mesh.clone(), spec.clone()).unwrap();
        rectangles(&sharding, shape).unwrap()
    };
    let taken: Vec<Vec<Rect>> =
        step.operands.iter().zip(&shapes).map(|(spec, shape)| shards(spec, shape)).collect();
    let made = shards(&step.result, &result);
    let mut sums = vec![0; whole.len()];
    for (device, rect) in made.iter().enumerate() {
        let mut extents: Vec<Vec<usize>> =
            taken.iter().map(|rects| rects[device].extent.to_vec()).collect();
        extents.push(rect.extent.to_vec());
        let parts: Vec<Vec<i64>> = taken
            .iter()
            .zip(values.iter().zip(&shapes))
            .map(|(rects, (values, shape))| part_of(values, shape, &rects[device]))
            .collect();
        let local = local_sizes(&factors, sizes, &extents);
        let own = compute(&factors, &local, &parts);
        // Add up the partial values of the first of each group of copies.
        let used: Vec<&AxisRef> = step
            .result
            .dims
            .iter()
            .flat_map(|dim| &dim.axes)
            .chain(step.result.partial.keys())
            .collect();
        let copies = ["dp", "tp", "pp"].map(AxisRef::from);
        let mut copies = copies.iter().filter(|axis| !used.contains(axis));
        if copies.all(|axis| given.mesh.index_of(axis, device) == Some(0)) {
            let places = part_of(&(0..whole.len() as i64).collect::<Vec<_>>(), &result, rect);
            assert_eq!(places.len(), own.len(), "{}", text(&step));
            places.iter().zip(own).for_each(|(&at, x)| sums[at as usize] += x);
        }
    }
    assert_eq!(sums, whole, "{rule} of {sizes:?}: {}", text(&step));
}

/// A spec of dimensions only.
fn any_cut(rank: usize) -> impl Strategy<Value = P> {
    any_spec(rank).prop_map(move |mut spec| {
        spec.partial.clear();
        spec.dims.truncate(rank);
        spec
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn an_op_in_parts_is_the_op(
        rule in 0..7usize,
        sizes in prop::array::uniform4(1..6usize),
        specs in (any_cut(2), any_cut(2)),
        more in (any_cut(1), any_cut(3)),
    ) {
        let (two, other) = specs;
        let (one, three) = more;
        let (rule, specs) = match rule {
            0 => ("i j, j k -> i k; j: add", vec![two, other]),
            1 => ("i j, i j -> i j", vec![two, other]),
            2 => ("i j -> (i j)", vec![two]),
            3 => ("(i j) -> j i", vec![one]),
            4 => ("i j, j -> i; j: add", vec![two, one]),
            5 => ("i (j k), j k i -> k (i j)", vec![two, three]),
            _ => ("(i j k) l -> i (l k); j: add", vec![two]),
        };
        let count = Factors::parse(rule).unwrap().factors().len();
        check(rule, &sizes[..count], &specs);
    }
}
