//! How much cells hold, as numbers that whoever bounds them reads while they grow.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// What one cell's table holds now. Written by the table, read by everyone; the two numbers may be of
/// different moments.
#[derive(Debug, Default)]
pub struct Gauge {
    objects: AtomicU64,
    bytes: AtomicU64,
    total: Arc<Total>,
}

/// Bytes of all tables together.
#[derive(Debug, Default)]
pub struct Total(AtomicU64);

/// What may be held, and what is held of it: checked by every cell that it counts, while it grows.
///
/// Two are equal only if they are the same one, so that comparing the tunings of thousands of cells
/// stays cheap: whoever makes them keeps those that do not change.
#[derive(Debug)]
pub struct Allowance {
    max_objects: Option<u64>,
    max_bytes: Option<u64>,
    held: Held,
}

/// What an allowance counts.
#[derive(Debug)]
pub enum Held {
    /// These cells, each once.
    Cells(Vec<Arc<Gauge>>),
    /// All tables.
    Everything(Arc<Total>),
}

/// What one profile that wants a cell leaves it: its own allowance, its namespace's, the process's.
pub type Leave = Vec<Arc<Allowance>>;

/// What the profiles that want a cell leave it.
///
/// A cell goes on while one of them still lets it: a limit is the business of the profile that sets
/// it, and ends nobody else's cell.
#[derive(Clone, Debug, Default)]
pub struct Leaves(Vec<Leave>);

impl Gauge {
    /// Of a table that holds nothing yet, counted in `total`.
    #[must_use]
    pub fn new(total: Arc<Total>) -> Self {
        let (objects, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { objects, bytes, total }
    }

    /// Says what the table holds now.
    pub fn set(&self, objects: u64, bytes: u64) {
        self.objects.store(objects, Ordering::Relaxed);
        let before = self.bytes.swap(bytes, Ordering::Relaxed);
        // Wraps where bytes went down: sums of such differences come out right.
        self.total.0.fetch_add(bytes.wrapping_sub(before), Ordering::Relaxed);
    }

    /// Objects held.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.set(0, 0);
    }
}

impl Total {
    /// Bytes held by all tables.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Allowance {
    /// At most so many objects and bytes of `held`; `None` is no bound.
    #[must_use]
    pub fn new(max_objects: Option<u64>, max_bytes: Option<u64>, held: Held) -> Self {
        Self { max_objects, max_bytes, held }
    }

    /// Whether this is what [`Allowance::new`] would make of these.
    #[must_use]
    pub fn is_of(&self, max_objects: Option<u64>, max_bytes: Option<u64>, held: &Held) -> bool {
        let same = match (&self.held, held) {
            (Held::Cells(a), Held::Cells(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
            }
            (Held::Everything(a), Held::Everything(b)) => Arc::ptr_eq(a, b),
            (Held::Cells(_), Held::Everything(_)) | (Held::Everything(_), Held::Cells(_)) => false,
        };
        same && (self.max_objects, self.max_bytes) == (max_objects, max_bytes)
    }

    /// Whether more is held than allowed. Cost: a few nanoseconds a cell.
    #[must_use]
    pub fn is_exceeded(&self) -> bool {
        let sum = |of: fn(&Gauge) -> u64| match &self.held {
            Held::Cells(cells) => cells.iter().map(|gauge| of(gauge)).sum(),
            Held::Everything(_) => 0,
        };
        let bytes = || match &self.held {
            Held::Cells(_) => sum(Gauge::bytes),
            Held::Everything(total) => total.bytes(),
        };
        self.max_objects.is_some_and(|max| sum(Gauge::objects) > max)
            || self.max_bytes.is_some_and(|max| bytes() > max)
    }
}

impl PartialEq for Leaves {
    fn eq(&self, other: &Self) -> bool {
        let same = |(a, b): (&Leave, &Leave)| {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
}

impl Eq for Leaves {}

impl Leaves {
    /// What each profile leaves it.
    pub fn of_each(profiles: impl IntoIterator<Item = Leave>) -> Self {
        Self(profiles.into_iter().collect())
    }

    /// Whether nobody lets the cell hold more.
    #[must_use]
    pub fn are_used_up(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(is_exceeded)
    }

    /// Whether one of the profiles no longer lets it.
    #[must_use]
    pub fn are_partly_used_up(&self) -> bool {
        self.0.iter().any(is_exceeded)
    }
}

fn is_exceeded(leave: &Leave) -> bool {
    leave.iter().any(|allowance| allowance.is_exceeded())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gauges(total: &Arc<Total>) -> [Arc<Gauge>; 2] {
        [(); 2].map(|()| Arc::new(Gauge::new(Arc::clone(total))))
    }

    fn allowance(max_objects: u64, cells: &[Arc<Gauge>]) -> Arc<Allowance> {
        Arc::new(Allowance::new(Some(max_objects), None, Held::Cells(cells.to_vec())))
    }

    #[test]
    fn the_total_follows_every_gauge_up_and_down() {
        let total = Arc::new(Total::default());
        let [a, b] = gauges(&total);
        a.set(1, 100);
        b.set(1, 50);
        a.set(1, 30);
        assert_eq!(total.bytes(), 80);
        drop(b);
        assert_eq!(total.bytes(), 30);
    }

    #[test]
    fn an_allowance_counts_its_cells_together() {
        let total = Arc::new(Total::default());
        let cells = gauges(&total);
        let objects = allowance(10, &cells);
        let bytes = Allowance::new(None, Some(10), Held::Everything(total));
        cells[0].set(6, 5);
        cells[1].set(4, 5);
        assert!(!objects.is_exceeded() && !bytes.is_exceeded());
        cells[1].set(5, 6);
        assert!(objects.is_exceeded() && bytes.is_exceeded());
    }

    #[test]
    fn a_cell_goes_on_while_one_profile_lets_it() {
        let cells = gauges(&Arc::default());
        cells[0].set(20, 0);
        let (small, large) = (allowance(10, &cells), allowance(100, &cells));
        let one = Leaves::of_each([vec![Arc::clone(&small)]]);
        assert!(one.are_used_up() && one.are_partly_used_up());
        let both = Leaves::of_each([vec![Arc::clone(&small)], vec![large]]);
        assert!(!both.are_used_up() && both.are_partly_used_up());
        let unlimited = Leaves::of_each([vec![small], Vec::new()]);
        assert!(!unlimited.are_used_up() && unlimited.are_partly_used_up());
        assert!(!Leaves::default().are_used_up());
    }
}
