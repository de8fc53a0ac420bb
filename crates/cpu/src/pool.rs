//! Placeholder for the pool.
/// Pool.
pub struct Pool;
impl Pool {
    /// Global.
    pub fn global() -> &'static Pool {
        &Pool
    }
}
