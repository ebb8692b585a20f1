//! Where elements lie: the layer view, the page view and the written formulas agree, in every layout.

use hicache_core::{Alignment, DType, Element, ErrorKind, Geometry, PageIndex, PageLayout, PageOrder};
use proptest::prelude::*;

/// Tensors, layers, tokens, heads, elements of a vector, bytes of an element.
type Shape = [usize; 6];

fn geometry(kind: usize, [layers, tokens, heads, dim]: [u32; 4], dtype: DType) -> (Geometry, Shape) {
    let [l, t, h, d] = [layers, tokens, heads, dim].map(|count| count as usize);
    let b = dtype.len();
    match kind {
        0 => (Geometry::Mha { layers, tokens, heads, head_dim: dim, dtype }, [2, l, t, h, d, b]),
        1 => (Geometry::HalfMha { layers, tokens, heads, head_dim: dim, dtype }, [1, l, t, h, d, b]),
        2 => (Geometry::Mla { layers, tokens, latent_dim: dim, dtype }, [1, l, t, 1, d, b]),
        3 => (Geometry::Indexer { layers, tokens, token_len: dim }, [1, l, 1, 1, t * d, 1]),
        4 => (Geometry::State { layers, layer_len: d * h }, [1, l, 1, 1, d * h, 1]),
        _ => (Geometry::Opaque { len: d * t }, [1, 1, 1, 1, d * t, 1]),
    }
}

fn elements([tensors, layers, tokens, heads, dim, _]: Shape) -> impl Iterator<Item = Element> {
    (0..tensors * layers * tokens * heads * dim).map(move |mut index| {
        let mut digit = |of| {
            let digit = index % of;
            index /= of;
            digit
        };
        let (dim, head, token, layer) = (digit(dim), digit(heads), digit(tokens), digit(layers));
        let [tensor, layer, token, head] = [digit(tensors), layer, token, head].map(|at| at as u32);
        Element { tensor, layer, token, head, dim }
    })
}

/// The byte of an element in a flat page, from the dimensions in the order that each name says.
fn flat([tensors, layers, tokens, heads, dim, len]: Shape, order: PageOrder, e: Element) -> usize {
    let [c, l, t, h] = [e.tensor, e.layer, e.token, e.head].map(|at| at as usize);
    let [c, l, t, h, d] = [(c, tensors), (l, layers), (t, tokens), (h, heads), (e.dim, dim)];
    let axes = match order {
        PageOrder::LayerFirst | PageOrder::PageFirstDirect => [c, l, t, h, d],
        PageOrder::PageFirst => [c, t, l, h, d],
        PageOrder::PageHead => [c, h, t, l, d],
    };
    len * axes.into_iter().fold(0, |sum, (at, of)| sum * of + at)
}

fn check_b029(geometry: Geometry, shape: Shape, pages: u32, alignment: Alignment) {
    for order in PageOrder::ALL {
        let layout = PageLayout::new(geometry, order).unwrap();
        let strides = layout.strides(pages, alignment).unwrap();
        let mut seen = vec![false; layout.page_len() / shape[5]];
        for element in elements(shape) {
            let (plane, place) = layout.place(element);
            let at = plane as usize * layout.piece_len() + place;
            assert_eq!(at, flat(shape, order, element), "{layout} {element:?}: the page view");
            let view = layout.layer_view(&strides, element.tensor, element.layer).unwrap();
            let Element { token, head, dim, .. } = element;
            for page in [0, pages - 1].map(PageIndex::new) {
                let piece = strides.piece(page, plane);
                assert_eq!(view.offset(page, token, head, dim), piece.start + place, "{layout} {element:?}");
                assert!(piece.start + place + shape[5] <= piece.end);
            }
            assert!(
                !std::mem::replace(&mut seen[at / shape[5]], true),
                "{layout} {element:?}: its own place"
            );
        }
        assert!(seen.into_iter().all(|seen| seen), "{layout}: the product of the dimensions");
    }
}

#[test]
fn b029_every_view_of_every_layout_addresses_the_same_element() {
    for kind in 0..6 {
        for dims in [[3, 4, 2, 8], [1, 1, 1, 1], [1, 4, 2, 8], [3, 1, 2, 8], [3, 4, 1, 8], [3, 4, 2, 1]] {
            let (geometry, shape) = geometry(kind, dims, DType::Bf16);
            check_b029(geometry, shape, 5, Alignment::NONE);
        }
    }
}

#[test]
fn elements_lie_at_the_worked_places() {
    // 32 layers, 64 tokens, 8 heads of 128 elements of 2 bytes: layer 3, token 5, head 6, element 7 of V.
    let geometry = Geometry::Mha { layers: 32, tokens: 64, heads: 8, head_dim: 128, dtype: DType::Bf16 };
    let element = Element { tensor: 1, layer: 3, token: 5, head: 6, dim: 7 };
    let wanted = [
        (PageOrder::LayerFirst, 32 + 3, (5 * 8 + 6) * 128 + 7),
        (PageOrder::PageFirst, 1, ((5 * 32 + 3) * 8 + 6) * 128 + 7),
        (PageOrder::PageFirstDirect, 1, ((3 * 64 + 5) * 8 + 6) * 128 + 7),
        (PageOrder::PageHead, 1, ((6 * 64 + 5) * 32 + 3) * 128 + 7),
    ];
    for (order, plane, place) in wanted {
        let layout = PageLayout::new(geometry, order).unwrap();
        assert_eq!(layout.place(element), (plane, 2 * place), "{order:?}");
    }
    // Of three pages, page 1 in `layer_first`: the slot's row of 2,048 bytes a token, layers 393,216 bytes apart.
    let layout = PageLayout::new(geometry, PageOrder::LayerFirst).unwrap();
    let view = layout.layer_view(&layout.strides(3, Alignment::NONE).unwrap(), 0, 3).unwrap();
    assert_eq!((view.start, view.page_stride, view.token_stride), (3 * 393_216, 131_072, 2_048));
    assert_eq!(view.offset(PageIndex::new(1), 0, 0, 0), 3 * 393_216 + 64 * 2_048);
}

#[test]
fn a_view_of_another_pool_or_layer_is_refused() {
    let layout = |tokens| {
        let geometry = Geometry::Mla { layers: 2, tokens, latent_dim: 8, dtype: DType::F16 };
        PageLayout::new(geometry, PageOrder::LayerFirst).unwrap()
    };
    let strides = layout(4).strides(2, Alignment::NONE).unwrap();
    let refused = [
        layout(5).layer_view(&strides, 0, 0),
        layout(4).layer_view(&strides, 1, 0),
        layout(4).layer_view(&strides, 0, 2),
    ];
    for view in refused {
        assert_eq!(view.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    assert!(layout(4).layer_view(&strides, 0, 1).is_ok());
    let outside = std::panic::catch_unwind(|| layout(4).place(Element { token: 4, ..Element::default() }));
    let said = outside.unwrap_err();
    assert!(said.downcast_ref::<String>().unwrap().contains("token: 4"), "another panic");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn b029_in_random_shapes_padded_or_not(
        kind in 0..6_usize,
        dims in prop::array::uniform4(1..5_u32),
        pages in 1..4_u32,
        wide in any::<bool>(),
        log2 in 0..13_u32,
    ) {
        let (geometry, shape) = geometry(kind, dims, if wide { DType::F32 } else { DType::F8E4m3 });
        check_b029(geometry, shape, pages, Alignment::new(1 << log2).unwrap());
    }
}
