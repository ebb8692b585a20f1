//! A page's bytes between orders, to and from the flat page, and some heads of it.

use hicache_core::{Alignment, DType, Element, ErrorKind, Geometry, PageIndex, PageLayout, PageOrder};
use proptest::prelude::*;

const LARGE: Geometry = Geometry::Mha { layers: 3, tokens: 4, heads: 6, head_dim: 5, dtype: DType::Bf16 };

fn layout(geometry: Geometry, order: PageOrder) -> PageLayout {
    PageLayout::new(geometry, order).unwrap()
}

/// A flat page whose every byte is told from its neighbours.
fn page(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(2_654_435_761) >> 8) as u8 ^ at as u8).collect()
}

/// The bytes of one element of a flat page.
fn read(layout: &PageLayout, flat: &[u8], element: Element) -> Vec<u8> {
    let (plane, place) = layout.place(element);
    let at = plane as usize * layout.piece_len() + place;
    flat[at..at + 2].to_vec()
}

#[test]
fn every_element_is_found_in_every_other_order() {
    let geometries = [
        LARGE,
        Geometry::HalfMha { layers: 3, tokens: 4, heads: 6, head_dim: 5, dtype: DType::F16 },
        Geometry::Mla { layers: 3, tokens: 4, latent_dim: 5, dtype: DType::Bf16 },
    ];
    for geometry in geometries {
        let (tensors, heads) = match geometry {
            Geometry::Mha { heads, .. } => (2, heads),
            Geometry::HalfMha { heads, .. } => (1, heads),
            _ => (1, 1),
        };
        for from in PageOrder::ALL.map(|order| layout(geometry, order)) {
            let source = page(from.page_len());
            for to in PageOrder::ALL.map(|order| layout(geometry, order)) {
                let mut target = vec![0; to.page_len()];
                from.convert(&source, &to, &mut target).unwrap();
                for index in 0..tensors * 3 * 4 * heads * 5 {
                    let (dim, rest) = ((index % 5) as usize, index / 5);
                    let (head, rest) = (rest % heads, rest / heads);
                    let element =
                        Element { tensor: rest / 12, layer: rest / 4 % 3, token: rest % 4, head, dim };
                    assert_eq!(read(&from, &source, element), read(&to, &target, element), "{from} -> {to}");
                }
                let mut back = vec![0; from.page_len()];
                to.convert(&target, &from, &mut back).unwrap();
                assert!(back == source, "{from} -> {to} and back");
            }
        }
    }
}

#[test]
fn bytes_without_tokens_are_the_same_in_every_order() {
    let geometries = [
        Geometry::Indexer { layers: 3, tokens: 4, token_len: 132 },
        Geometry::State { layers: 3, layer_len: 1_000 },
        Geometry::Opaque { len: 1_000 },
    ];
    for geometry in geometries {
        for from in PageOrder::ALL.map(|order| layout(geometry, order)) {
            let source = page(from.page_len());
            for to in PageOrder::ALL.map(|order| layout(geometry, order)) {
                let mut target = vec![0; to.page_len()];
                from.convert(&source, &to, &mut target).unwrap();
                assert_eq!(source, target, "{from} -> {to}");
            }
        }
    }
}

#[test]
fn a_flat_page_is_its_pieces_in_the_order_of_their_planes() {
    for order in PageOrder::ALL {
        let layout = layout(LARGE, order);
        let flat = page(layout.page_len());
        let mut pieces = vec![vec![0; layout.piece_len()]; layout.planes() as usize];
        let mut places: Vec<&mut [u8]> = pieces.iter_mut().map(Vec::as_mut_slice).collect();
        layout.unflatten(&flat, &mut places).unwrap();
        assert_eq!(pieces.concat(), flat);
        let mut again = vec![0; flat.len()];
        layout.flatten(&pieces.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut again).unwrap();
        assert_eq!(again, flat);
    }
}

#[test]
fn buffers_are_listed_k_and_v_of_each_layer_where_layers_come_first() {
    let buffers = |order| Vec::from_iter(layout(LARGE, order).buffer_planes());
    assert_eq!(buffers(PageOrder::LayerFirst), [0, 3, 1, 4, 2, 5]);
    assert_eq!(buffers(PageOrder::PageFirst), [0, 1]);
    let latent = Geometry::Mla { layers: 3, tokens: 4, latent_dim: 5, dtype: DType::Bf16 };
    assert_eq!(Vec::from_iter(layout(latent, PageOrder::LayerFirst).buffer_planes()), [0, 1, 2]);
}

#[test]
fn b031_bytes_one_too_many_or_too_few_are_refused_and_nothing_is_written() {
    let (from, to) = (layout(LARGE, PageOrder::PageFirst), layout(LARGE, PageOrder::PageHead));
    let len = from.page_len();
    let other = layout(Geometry::Opaque { len }, PageOrder::PageFirst);
    for (source, target, to) in
        [(len - 1, len, &to), (len + 1, len, &to), (len, len - 1, &to), (len, len, &other)]
    {
        let mut into = vec![7; target];
        let error = from.convert(&page(source), to, &mut into).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        assert!(into.iter().all(|byte| *byte == 7));
    }
    let piece = vec![1; from.piece_len()];
    let short = &piece[1..];
    for pieces in [&[&piece[..]][..], &[&piece, short], &[&piece, &piece, &piece], &[]] {
        let mut flat = vec![7; len];
        assert_eq!(from.flatten(pieces, &mut flat).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(flat.iter().all(|byte| *byte == 7));
        let mut pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let mut places: Vec<&mut [u8]> = pieces.iter_mut().map(Vec::as_mut_slice).collect();
        assert_eq!(from.unflatten(&flat, &mut places).unwrap_err().kind(), ErrorKind::InvalidArgument);
        assert!(pieces.concat().iter().all(|byte| *byte == 1));
    }
    assert_eq!(
        from.flatten(&[&piece, &piece], &mut vec![7; len + 1]).unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
}

/// Buffers of a page in parts of its heads, as SGLang HiCache splits them: with `s` the page's first token,
/// `base + s * L * H * D * b + h * P * L * D * b`, of `P * L * H * D * b / parts` bytes.
#[test]
fn heads_lie_at_the_worked_addresses() {
    let geometry = Geometry::Mha { layers: 32, tokens: 64, heads: 8, head_dim: 128, dtype: DType::Bf16 };
    let layout = layout(geometry, PageOrder::PageHead);
    let strides = layout.strides(3, Alignment::NONE).unwrap();
    for parts in [1, 2, 4, 8] {
        let step = 8 / parts;
        for h in (0..8).step_by(step) {
            let range = layout.head_range(h as u32..(h + step) as u32).unwrap();
            let piece = strides.piece(PageIndex::new(1), 1);
            let start = piece.start + range.bytes().start;
            assert_eq!(start, 0xC0_0000 + 64 * 65_536 + h * 64 * 32 * 128 * 2);
            assert_eq!(range.bytes().len(), 4_194_304 / parts);
            assert_eq!(range.layout().piece_len(), 4_194_304 / parts);
        }
    }
}

#[test]
fn some_heads_of_a_page_are_a_page_of_those_heads() {
    let whole = layout(LARGE, PageOrder::PageHead);
    let flat = page(whole.page_len());
    let range = whole.head_range(2..5).unwrap();
    let part: Vec<u8> =
        flat.chunks(whole.piece_len()).flat_map(|piece| piece[range.bytes()].to_vec()).collect();
    for index in 0..2 * 3 * 4 * 3 * 5 {
        let (dim, rest) = ((index % 5) as usize, index / 5);
        let (head, rest) = (rest % 3, rest / 3);
        let element = Element { tensor: rest / 12, layer: rest / 4 % 3, token: rest % 4, head, dim };
        let in_whole = Element { head: head + 2, ..element };
        assert_eq!(read(range.layout(), &part, element), read(&whole, &flat, in_whole));
    }
    let mut orders = PageOrder::ALL.into_iter().filter(|order| *order != PageOrder::PageHead);
    assert!(orders.all(|order| layout(LARGE, order).head_range(0..1).is_err()));
    for (start, end) in [(0, 0), (3, 2), (0, 7), (6, 7), (u32::MAX, 0)] {
        assert_eq!(whole.head_range(start..end).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    let latent = Geometry::Mla { layers: 3, tokens: 4, latent_dim: 5, dtype: DType::Bf16 };
    assert!(layout(latent, PageOrder::PageHead).head_range(0..1).is_err());
}

proptest! {
    #[test]
    fn converting_on_is_converting_at_once(
        [layers, tokens, heads, head_dim] in prop::array::uniform4(1..6_u32),
        orders in prop::array::uniform3(prop::sample::select(PageOrder::ALL.to_vec())),
    ) {
        let geometry = Geometry::Mha { layers, tokens, heads, head_dim, dtype: DType::F8E5m2 };
        let [a, b, c] = orders.map(|order| layout(geometry, order));
        let source = page(a.page_len());
        let (mut middle, mut end, mut direct) = (source.clone(), source.clone(), source.clone());
        a.convert(&source, &b, &mut middle).unwrap();
        b.convert(&middle, &c, &mut end).unwrap();
        a.convert(&source, &c, &mut direct).unwrap();
        prop_assert_eq!(end, direct);
    }
}
