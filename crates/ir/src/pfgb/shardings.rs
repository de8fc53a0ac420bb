//! The section of a file that holds the shardings of a graph's values.

use super::codes::{decode_text, encode_text};
use crate::ops::fields::{Bytes, Expected, Field};
use crate::sharding::{DeviceMesh, P, Sharding};
use crate::{Graph, NodeId};

/// Appends the section: its length, the mesh, and for each node with a sharding its position and
/// spec.
pub(super) fn encode(graph: &Graph, out: &mut Vec<u8>) {
    let Some(mesh) = graph.own_mesh() else { return };
    let mut section = Vec::new();
    encode_text(&mesh.to_string(), &mut section);
    (graph.partitions().count() as u32).encode(&mut section);
    for (id, spec) in graph.partitions() {
        id.0.encode(&mut section);
        encode_text(&spec.to_string(), &mut section);
    }
    (section.len() as u32).encode(out);
    out.extend(section);
}

/// The shardings of a file whose nodes are not read yet.
pub(super) struct Shardings {
    mesh: DeviceMesh,
    specs: Vec<(u32, P)>,
}

impl Shardings {
    pub(super) fn decode(bytes: &mut Bytes<'_>) -> Result<Shardings, Expected> {
        let len = bytes.count(1)?;
        let mut section = Bytes { rest: bytes.take(len)?, ..*bytes };
        let mesh = decode_text(&mut section)?;
        let mesh = mesh.parse().map_err(|_| format!("a mesh of shardings, found '{mesh}'"))?;
        let spec = |section: &mut Bytes<'_>| -> Result<(u32, P), Expected> {
            let id = u32::from_le_bytes(section.array()?);
            let text = decode_text(section)?;
            let spec =
                text.parse().map_err(|_| format!("a spec such as '<dp, *>', found '{text}'"));
            Ok((id, spec?))
        };
        let count = section.count(8)?;
        let specs = (0..count).map(|_| spec(&mut section)).collect::<Result<_, _>>()?;
        match section.rest.len() {
            0 => Ok(Shardings { mesh, specs }),
            more => Err(format!("the end of the shardings, found {more} more bytes")),
        }
    }

    /// Sets the shardings of the graph.
    pub(super) fn attach(self, graph: &mut Graph) -> Result<(), Expected> {
        for (id, spec) in self.specs {
            let (len, id) = (graph.len(), NodeId(id));
            if id.index() >= len || graph.partition(id).is_some() {
                return Err(format!("shardings of each of {len} nodes once, found {id}"));
            }
            let sharding = Sharding::new(self.mesh.clone(), spec);
            let set = sharding.and_then(|sharding| graph.set_sharding(id, sharding));
            set.map_err(|error| format!("a valid sharding of {id}, found that {error}"))?;
        }
        Ok(())
    }
}
