//! The conformance suite for devices: if a device passes the suite, all of Girih works on it.
//!
//! A device's crate runs the suite as tests with one line:
//!
//! ```text
//! girih_conformance::suite!(mine, girih_conformance::Subject::new(MyBackend, || MyDevice::new()));
//! ```
//!
//! Each check creates its own devices, so checks can run concurrently. Results are compared with
//! the reference evaluator (`girih-reference`). It shares no loops with a device; a device may call
//! the same routines on matrices (`girih-linalg`), because the factors of a matrix are not unique.

pub mod captures;
pub mod faults;
pub mod memory;
pub mod ops;
pub mod programs;
pub mod queues;
mod random;
pub mod rig;
pub mod steps;
pub mod streams;
pub mod tiles;
pub mod transfers;

pub use random::{Random, program as random_program};
pub use rig::{Rig, Subject};

/// Generates a module of tests, one per check of the suite, for the devices of a [`Subject`].
#[macro_export]
macro_rules! suite {
    ($name:ident, $subject:expr) => {
        $crate::suite! {
            @ $name, $subject,
            memory: [
                bytes_come_back_as_they_went,
                blocks_are_aligned_and_disjoint,
                strided_copies_agree_with_a_model,
                foreign_and_too_long_handles_are_refused,
                out_of_memory_is_an_error_that_leaves_the_device_usable,
                host_bytes_may_change_after_they_are_enqueued,
                a_dropped_block_lives_until_queued_work_is_done,
            ],
            queues: [
                primitives_of_a_queue_are_done_in_order,
                primitives_of_queues_at_once_do_not_meet,
                bytes_are_the_callers_again_after_they_are_enqueued,
                a_place_of_another_device_is_refused,
            ],
            ops: [every_op_computes_the_reference_in_every_dtype],
            programs: [
                random_programs_compute_the_reference,
                one_plan_serves_many_arguments_and_threads,
                an_evicted_plan_lives_until_queued_work_is_done,
                launches_change_no_byte_of_a_binary,
                arguments_that_do_not_fit_the_plan_are_refused,
                draws_follow_their_key,
                sizes_are_bound_without_compiling_again,
                donated_arguments_may_be_written_over,
            ],
            steps: [
                copies_launches_and_host_functions_run_in_order,
                loops_and_branches_run_from_the_host,
                arguments_of_other_plans_are_refused,
                copies_to_buffers_without_memory_are_refused,
            ],
            streams: [
                work_of_a_stream_is_in_order,
                events_order_streams,
                streams_share_a_plan,
                errors_stay_with_their_stream,
                a_dropped_stream_finishes_its_work,
                every_policy_gives_the_same_results,
            ],
            tiles: [
                matmuls_are_tiled_in_every_dimension,
                tiles_come_row_by_row_with_the_contracted_dimension_innermost,
                remainders_are_exact_padded_or_refused,
                partial_reductions_are_combined,
                random_programs_tile_to_the_same_bits,
                every_op_with_factors_is_tiled,
                tensors_that_tiles_do_not_cover_are_refused,
                tiles_are_read_in_place,
                strided_arguments_are_checked,
                a_tiles_program_is_compiled_once,
                each_program_of_a_plan_is_launched_whole_or_tiled,
            ],
            transfers: [arrays_come_back_from_their_tiles, views_of_arrays_are_gathered],
            captures: [
                replays_take_new_arguments,
                replays_take_scalars_and_keys,
                replays_on_streams_do_not_meet,
                a_replay_that_fails_concerns_no_other,
                captures_are_checked,
            ],
            faults: [
                each_fault_is_told_and_nothing_leaks,
                a_failure_reaches_a_chain_of_dependants_as_it_is,
                failed_copies_within_the_device_are_told,
                a_failed_load_frees_the_images_before_it,
                corrupted_copies_are_found_by_checksums,
                no_memory_fails_one_evaluation_alone,
                random_schedules_with_faults,
            ],
        }
    };
    (@ $name:ident, $subject:expr, $($group:ident: [$($check:ident),* $(,)?],)*) => {
        mod $name {
            #[allow(unused_imports, reason = "the subject may be written by what is around")]
            use super::*;
            $($(
                #[test]
                fn $check() {
                    $crate::$group::$check(&$subject);
                }
            )*)*
        }
    };
}
