//! Batching of custom ops by their own batching rules.

use super::{Batch, Value, with_batch};
use crate::{Error, Result};
use girih_ir::ops::host::{HostBatch, HostBatching, HostCall, HostFailure};
use girih_ir::{Node, NodeId, TensorSpec};

impl Batch<'_> {
    /// A result of a custom op from the graph that the op's batching rule records; `None` for all
    /// other ops. All results of one call come from one recorded graph.
    pub(super) fn by_own_rule(&mut self, node: &Node, operands: &[Value]) -> Result<Option<Value>> {
        let Some((result, call)) = node.op.as_host() else { return Ok(None) };
        if call.batching() != HostBatching::Rule {
            return Ok(None);
        }
        let inputs: Vec<NodeId> = operands.iter().map(|v| v.id).collect();
        let key = (call.key().to_string(), inputs);
        if !self.ruled.contains_key(&key) {
            let specs: Vec<TensorSpec> = key.1.iter().map(|&id| self.b.spec(id).clone()).collect();
            let marks: Vec<bool> = operands.iter().map(|v| v.batched).collect();
            let Some(batch) = call.op().batch(self.axis.size, &specs, &marks) else {
                return Ok(None);
            };
            let batch = batch.map_err(Error::Host)?;
            self.check_batch(call, &specs, &batch)?;
            let (graph, batched) = batch;
            let ids = self.b.inline(&graph, &key.1)?;
            let value = |(id, batched)| Value { id, batched };
            self.ruled.insert(key.clone(), ids.into_iter().zip(batched).map(value).collect());
        }
        Ok(Some(self.ruled[&key][result]))
    }

    /// Fails unless the rule's graph takes the operands and returns the results.
    fn check_batch(
        &self,
        call: &HostCall,
        operands: &[TensorSpec],
        (graph, batched): &HostBatch,
    ) -> Result<()> {
        let refuse = |reason: String| {
            let op = call.op().name().to_string();
            Err(Error::Host(HostFailure { op, ..HostFailure::new(reason) }))
        };
        let (found, expected) = (graph.outputs().len(), call.results().len());
        let taken = graph.arguments().count();
        if found != expected || batched.len() != expected || taken != operands.len() {
            return refuse(format!(
                "the batching rule gives {found} results of {taken} operands; expected {expected} of {}",
                operands.len()
            ));
        }
        for (number, (spec, &mark)) in call.results().iter().zip(batched).enumerate() {
            let mut expected = spec.clone();
            if mark {
                expected.shape = with_batch(self.axis.size, &spec.shape);
            }
            let found = graph.spec(graph.outputs()[number]);
            if !found.equals(&expected) {
                let with = if mark { "with" } else { "without" };
                return refuse(format!(
                    "the batching rule gives {found} for result {number}; expected {expected}, since \
                     it says that the result is {with} the batch"
                ));
            }
        }
        Ok(())
    }
}
