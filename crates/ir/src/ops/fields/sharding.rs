//! The field of a reshard: its sharding, with the mesh.

use super::{Bytes, Context, Expected, Field, FieldMut};
use crate::sharding::{DeviceMesh, P, Sharding};

impl Field for Sharding {
    fn print(&self, _: Context<'_>, out: &mut String) {
        out.push_str(&format!("({self})"));
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let text = self.to_string();
        (text.len() as u32).encode(out);
        out.extend_from_slice(text.as_bytes());
    }
}

impl FieldMut for Sharding {
    fn parse(&mut self, _: Context<'_>, text: &str) -> Result<(), Expected> {
        let inside = text.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')'));
        let expected = || format!("a spec on a mesh in parentheses, found '{text}'");
        *self = inside
            .ok_or_else(expected)?
            .parse()
            .map_err(|error: crate::Error| format!("a spec on a mesh in parentheses; {error}"))?;
        Ok(())
    }

    fn decode(&mut self, bytes: &mut Bytes<'_>) -> Result<(), Expected> {
        let len = bytes.count(1)?;
        let text = crate::pfgb::utf8(bytes.take(len)?)?;
        *self = text.parse().map_err(|error: crate::Error| format!("a sharding; {error}"))?;
        Ok(())
    }

    fn arbitrary(&mut self, cx: Context<'_>, below: &mut dyn FnMut(usize) -> usize) {
        let mesh = DeviceMesh::new(&[1 + below(3), 2], &["x", "y"]).expect("the names are valid");
        let specs = ["<>", "<x>", "<(y, x)>", "<*; replicated={x}>", "<y?; partial={x: add}>"];
        let rank = cx.rank.unwrap_or(0);
        let specs = if rank == 0 { &specs[..1] } else { &specs[..] };
        let spec: P = specs[below(specs.len())].parse().expect("they are specs");
        *self = Sharding::new(mesh, spec).expect("the mesh has the axes");
    }
}
