//! Pieces never overlap and never leave the region, whatever the numbers.

use hicache_alloc::{Alignment, AllocError, PageIndex, Strides};
use proptest::prelude::*;
use std::ops::Range;

fn pieces(strides: &Strides) -> Vec<Range<usize>> {
    let planes = 0..strides.planes();
    let slots = 0..strides.slots();
    planes
        .flat_map(|plane| slots.clone().map(move |slot| strides.piece(PageIndex::new(slot), plane)))
        .collect()
}

fn overlap(pieces: &mut [Range<usize>]) -> bool {
    pieces.sort_by_key(|piece| piece.start);
    pieces.windows(2).any(|pair| pair[0].end > pair[1].start)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn padded_pieces_are_disjoint_and_aligned(
        planes in 1..9u32, slots in 1..40u32, slot_len in 1..5000usize, log2 in 0..13u32,
    ) {
        let alignment = Alignment::new(1 << log2).unwrap();
        let strides = Strides::new(planes, slots, slot_len, alignment).unwrap();
        let mut pieces = pieces(&strides);
        for piece in &pieces {
            prop_assert_eq!(piece.len(), slot_len);
            prop_assert!(alignment.is_aligned(piece.start));
            prop_assert!(alignment.align_up(piece.end).unwrap() <= strides.region_len());
        }
        prop_assert!(!overlap(&mut pieces));
        prop_assert_eq!(strides.page_len(), planes as usize * slot_len);
        prop_assert_eq!(strides.is_aligned(alignment), alignment.is_aligned(slot_len));
    }

    #[test]
    fn fixed_strides_are_disjoint_or_refused(
        planes in 1..6u32, slots in 1..12u32, slot_len in 1..20usize,
        slot_stride in 0..120usize, plane_stride in 0..240usize,
    ) {
        if let Ok(strides) = Strides::with_stride(planes, slots, slot_len, slot_stride, plane_stride) {
            let mut pieces = pieces(&strides);
            prop_assert!(!overlap(&mut pieces));
            prop_assert_eq!(pieces.last().unwrap().end, strides.region_len());
        }
    }

    #[test]
    fn both_nestings_are_taken_with_any_gap(
        planes in 1..6u32, slots in 1..12u32, slot_len in 1..20usize, gap in 0..9usize, outer_gap in 0..9usize,
    ) {
        let inner = slot_len + gap;
        let plane_by_plane = inner * (slots as usize - 1) + slot_len + outer_gap;
        prop_assert!(Strides::with_stride(planes, slots, slot_len, inner, plane_by_plane).is_ok());
        let slot_by_slot = inner * (planes as usize - 1) + slot_len + outer_gap;
        prop_assert!(Strides::with_stride(planes, slots, slot_len, slot_by_slot, inner).is_ok());
    }
}

#[test]
fn one_byte_too_close_is_refused() {
    assert!(Strides::with_stride(2, 3, 100, 100, 300).is_ok());
    for (slot_stride, plane_stride) in [(99, 300), (100, 299), (0, 300), (100, 0), (199, 100), (200, 99)] {
        let refused = Strides::with_stride(2, 3, 100, slot_stride, plane_stride);
        assert!(matches!(refused, Err(AllocError::InvalidShape { .. })), "{slot_stride} {plane_stride}");
    }
}

#[test]
fn nothing_and_too_much_are_refused() {
    let page = Alignment::base_page();
    for (planes, slots, len) in
        [(0, 1, 1), (1, 0, 1), (1, 1, 0), (2, u32::MAX, usize::MAX / 2), (1, 1, usize::MAX)]
    {
        assert!(matches!(Strides::new(planes, slots, len, page), Err(AllocError::InvalidShape { .. })));
        assert!(Strides::with_stride(planes, slots, len, len, len).is_err());
    }
    assert!(Strides::new(1, 1, isize::MAX as usize, Alignment::NONE).is_ok());
    assert!(Strides::new(1, 1, isize::MAX as usize, page).is_err());
    assert!(Strides::with_stride(2, 2, 1, usize::MAX, usize::MAX).is_err());
}

#[test]
fn a_slot_or_a_plane_out_of_range_panics_and_says_which() {
    let strides = Strides::new(2, 3, 8, Alignment::NONE).unwrap();
    for (slot, plane, wanted) in [(3, 0, "no slot 3"), (0, 2, "no plane 2")] {
        let panicked = std::panic::catch_unwind(|| strides.piece(PageIndex::new(slot), plane)).unwrap_err();
        let text = panicked.downcast_ref::<String>().unwrap();
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn alignment_rounds_and_refuses() {
    for bytes in [0, 3, 24, usize::MAX] {
        assert!(Alignment::new(bytes).is_none());
    }
    let alignment = Alignment::new(512).unwrap();
    assert_eq!(
        (alignment.align_up(0), alignment.align_up(1), alignment.align_up(512)),
        (Some(0), Some(512), Some(512))
    );
    assert_eq!((alignment.align_down(511), alignment.align_down(1023)), (0, 512));
    assert_eq!(alignment.align_up(usize::MAX), None);
    assert_eq!(Alignment::NONE.align_up(usize::MAX), Some(usize::MAX));
    assert!(Alignment::base_page().bytes() >= 4096);
}

#[test]
fn room_belongs_to_its_slot_alone_and_ends_inside_the_region() {
    let page = Alignment::base_page();
    for (planes, slots) in [(1, 3), (2, 3), (3, 1)] {
        let strides = Strides::with_room(planes, slots, 5_000, page, 8_192).unwrap();
        assert_eq!((strides.room(), strides.page_len()), (8_192, planes as usize * 5_000));
        let mut taken = Vec::new();
        for index in 0..slots {
            for plane in 0..planes {
                let piece = strides.piece(PageIndex::new(index), plane);
                taken.push(piece.start..piece.end + strides.room());
            }
        }
        taken.sort_by_key(|range| range.start);
        assert!(taken.windows(2).all(|pair| pair[0].end <= pair[1].start), "{taken:?}");
        assert!(taken.last().unwrap().end <= strides.region_len());
    }
    assert_eq!(Strides::new(1, 3, 5_000, page).unwrap().room(), 0);
    assert!(Strides::with_room(1, 1, 1, page, usize::MAX).is_err());
}
