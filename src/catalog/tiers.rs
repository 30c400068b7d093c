//! Size tiers: which adjacent runs are worth being written as one.

use std::ops::Range;

/// So many runs of like size are merged into one.
pub(crate) const MERGED_RUNS: usize = 4;

/// The places of the next runs to merge, given the sizes of adjacent runs, newest first; `None` where none are worth it.
///
/// A run joins while it is at most twice as large as all newer ones of its tier together, and four of them are worth a merge. So
/// every merge makes what it rewrites at least half as large again (four times as large, where the runs are alike): a byte is
/// rewritten a logarithmic number of times. And where nothing is left to merge, a tier has at most three runs, and is more than
/// twice as large as the next: there is a logarithmic number of runs.
pub(crate) fn next_merge(newest_first: impl IntoIterator<Item = u64>) -> Option<Range<usize>> {
    let (mut start, mut tier_bytes, mut place) = (0, 0_u64, 0);
    for bytes in newest_first {
        if place > start && bytes > tier_bytes.saturating_mul(2) {
            if place - start >= MERGED_RUNS {
                return Some(start..place);
            }
            (start, tier_bytes) = (place, 0);
        }
        tier_bytes = tier_bytes.saturating_add(bytes);
        place += 1;
    }
    (place - start >= MERGED_RUNS).then_some(start..place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_runs_are_merged_and_unlike_ones_are_not() {
        assert_eq!(next_merge([]), None);
        assert_eq!(next_merge([1, 1, 1]), None);
        assert_eq!(next_merge([1, 1, 1, 1]), Some(0..4));
        assert_eq!(next_merge([1, 1, 1, 7]), None);
        assert_eq!(next_merge([1, 10, 10, 10, 10, 1000]), Some(1..5));
        assert_eq!(next_merge([1, 2, 6, 18, 54]), Some(0..5), "each at most twice as large as all newer ones together");
    }

    #[test]
    fn what_is_left_when_nothing_is_merged_any_more_is_logarithmic() {
        let mut runs: Vec<u64> = Vec::new();
        let (mut written, commits) = (0_u64, 100_000_u64);
        for number in 0..commits {
            runs.insert(0, 1 + number % 7);
            while let Some(alike) = next_merge(runs.iter().copied()) {
                let sum = runs.splice(alike.clone(), []).sum();
                runs.insert(alike.start, sum);
                written += sum;
            }
            assert!(runs.len() <= 3 * 20, "{runs:?}");
        }
        let changed: u64 = (0..commits).map(|number| 1 + number % 7).sum();
        assert!(written <= changed * 10, "{written} for {changed}");
    }
}
