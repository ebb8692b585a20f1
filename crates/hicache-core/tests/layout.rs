//! Page layouts: the numbers of real models, the text, the bounds, and where each element lies.

use hicache_core::{
    Alignment, Capabilities, DType, ErrorKind, Geometry, PageIndex, PageLayout, PageOrder, Result,
};
use proptest::prelude::*;

const DTYPES: [DType; 6] = [DType::Bf16, DType::F16, DType::F32, DType::F8E4m3, DType::F8E5m2, DType::U8];

fn mha(layers: u32, tokens: u32, heads: u32, order: PageOrder) -> PageLayout {
    let geometry = Geometry::Mha { layers, tokens, heads, head_dim: 128, dtype: DType::Bf16 };
    PageLayout::new(geometry, order).unwrap()
}

fn mla(layers: u32, tokens: u32, latent_dim: u32, dtype: DType, order: PageOrder) -> PageLayout {
    PageLayout::new(Geometry::Mla { layers, tokens, latent_dim, dtype }, order).unwrap()
}

fn is_aligned(layout: &PageLayout, bytes: usize) -> bool {
    layout.strides(3, Alignment::NONE).unwrap().is_aligned(Alignment::new(bytes).unwrap())
}

#[test]
fn pages_of_grouped_heads_have_the_worked_sizes() {
    // Layers, tokens, heads on the rank, bytes of K.
    let cases = [
        (32, 64, 8, 4_194_304),
        (32, 64, 4, 2_097_152),
        (32, 64, 2, 1_048_576),
        (32, 64, 1, 524_288),
        (32, 1, 8, 65_536),
        (32, 1, 1, 8_192),
        (64, 64, 8, 8_388_608),
        (64, 64, 2, 2_097_152),
        (64, 64, 1, 1_048_576),
    ];
    for (layers, tokens, heads, k_len) in cases {
        for order in [PageOrder::PageFirst, PageOrder::PageFirstDirect, PageOrder::PageHead] {
            let layout = mha(layers, tokens, heads, order);
            assert_eq!((layout.planes(), layout.piece_len(), layout.page_len()), (2, k_len, 2 * k_len));
            assert!(is_aligned(&layout, 4_096));
        }
        let layout = mha(layers, tokens, heads, PageOrder::LayerFirst);
        let pieces = (2 * layers, k_len / layers as usize);
        assert_eq!((layout.planes(), layout.piece_len()), pieces);
        assert_eq!(layout.page_len(), 2 * k_len);
    }
}

#[test]
fn pages_of_latent_vectors_have_the_worked_sizes() {
    // Tokens, latent elements, element, bytes of the page, whether its end is a multiple of 4,096.
    let cases = [
        (64, 576, DType::Bf16, 4_497_408, true),
        (32, 576, DType::Bf16, 2_248_704, true),
        (16, 576, DType::Bf16, 1_124_352, false),
        (1, 576, DType::Bf16, 70_272, false),
        (64, 576, DType::F8E4m3, 2_248_704, true),
        (32, 576, DType::F8E4m3, 1_124_352, false),
        (64, 656, DType::U8, 2_561_024, false),
    ];
    for (tokens, latent_dim, dtype, len, aligned) in cases {
        for order in [PageOrder::PageFirst, PageOrder::PageFirstDirect, PageOrder::PageHead] {
            let layout = mla(61, tokens, latent_dim, dtype, order);
            assert_eq!((layout.planes(), layout.piece_len(), layout.page_len()), (1, len, len));
            assert_eq!(is_aligned(&layout, 4_096), aligned);
        }
        let layout = mla(61, tokens, latent_dim, dtype, PageOrder::LayerFirst);
        assert_eq!((layout.planes(), layout.piece_len(), layout.page_len()), (61, len / 61, len));
    }
    assert!(is_aligned(&mla(61, 64, 656, DType::U8, PageOrder::PageFirst), 512));
    let indexer = PageLayout::opaque(515_328).unwrap();
    assert_eq!((indexer.planes(), indexer.piece_len(), indexer.page_len()), (1, 515_328, 515_328));
    assert!(!is_aligned(&indexer, 512));
}

#[test]
fn texts_that_stores_have_recorded_stay_what_they_are() {
    let dtype = DType::F8E4m3;
    let recorded = [
        (
            Geometry::Mha { layers: 4, tokens: 32, heads: 2, head_dim: 64, dtype },
            "mha dtype=f8e4m3 order=page_head layers=4 tokens=32 heads=2 head_dim=64",
        ),
        (
            Geometry::Mla { layers: 4, tokens: 32, latent_dim: 576, dtype },
            "mla dtype=f8e4m3 order=page_head layers=4 tokens=32 latent_dim=576",
        ),
        (Geometry::Opaque { len: 4_096 }, "opaque dtype=u8 order=page_head len=4096"),
        (
            Geometry::HalfMha { layers: 4, tokens: 32, heads: 2, head_dim: 64, dtype },
            "half_mha dtype=f8e4m3 order=page_head layers=4 tokens=32 heads=2 head_dim=64",
        ),
        (
            Geometry::Indexer { layers: 61, tokens: 64, token_len: 132 },
            "indexer dtype=u8 order=page_head layers=61 tokens=64 token_len=132",
        ),
        (
            Geometry::State { layers: 36, layer_len: 1 << 40 },
            "state dtype=u8 order=page_head layers=36 layer_len=1099511627776",
        ),
    ];
    for (geometry, text) in recorded {
        let layout = PageLayout::new(geometry, PageOrder::PageHead).unwrap();
        assert_eq!(layout.to_string(), text);
        assert_eq!(text.parse::<PageLayout>().unwrap(), layout);
    }
}

#[test]
fn the_length_of_an_index_does_not_wrap_around() {
    let head_dim = std::hint::black_box(u32::MAX - 7);
    let caught = std::panic::catch_unwind(|| Geometry::indexer_token_len(head_dim)).unwrap_err();
    let text = caught.downcast_ref::<String>().map(String::as_str).or(caught.downcast_ref().copied());
    assert_eq!(text, Some("the length of a token fits a u32"));
}

#[test]
fn pages_of_sidecars_have_the_worked_sizes() {
    assert_eq!(Geometry::indexer_token_len(128), 132);
    for order in PageOrder::ALL {
        let indexer = Geometry::Indexer { layers: 61, tokens: 64, token_len: 132 };
        let indexer = PageLayout::new(indexer, order).unwrap();
        assert_eq!(indexer.page_len(), 515_328);
        let pieces = if order == PageOrder::LayerFirst { (61, 8_448) } else { (1, 515_328) };
        assert_eq!((indexer.planes(), indexer.piece_len()), pieces);
        let state = PageLayout::new(Geometry::State { layers: 36, layer_len: 49_152 }, order).unwrap();
        let pieces = if order == PageOrder::LayerFirst { (36, 49_152) } else { (1, 36 * 49_152) };
        assert_eq!((state.planes(), state.piece_len()), pieces);
        let dtype = DType::Bf16;
        let keys = Geometry::HalfMha { layers: 32, tokens: 64, heads: 8, head_dim: 128, dtype };
        let keys = PageLayout::new(keys, order).unwrap();
        let pieces = if order == PageOrder::LayerFirst { (32, 131_072) } else { (1, 4_194_304) };
        assert_eq!((keys.planes(), keys.piece_len(), keys.page_len()), (pieces.0, pieces.1, 4_194_304));
    }
}

#[test]
fn w12_k_and_v_of_different_length_are_two_layouts() {
    let [k, v] = PageLayout::split_kv([48, 64, 4], [192, 128], DType::Bf16, PageOrder::PageFirst).unwrap();
    assert_eq!((k.planes(), k.piece_len()), (1, 48 * 64 * 4 * 192 * 2));
    assert_eq!((v.planes(), v.piece_len()), (1, 48 * 64 * 4 * 128 * 2));
    let none = PageLayout::split_kv([48, 64, 4], [192, 0], DType::Bf16, PageOrder::PageFirst);
    assert!(none.unwrap_err().to_string().contains("head_dim is 0"));
}

#[test]
fn w7_what_is_aligned_is_said_for_any_alignment_and_what_is_not_is_padded() {
    // Order, tokens, and the largest alignment of 61 layers of 576 bf16: 70,272 bytes a token are 1,098 * 64.
    let cases = [
        (PageOrder::PageFirst, 64, 4_096 * 2),
        (PageOrder::PageFirst, 32, 4_096),
        (PageOrder::PageFirst, 16, 2_048),
        (PageOrder::PageFirst, 1, 128),
        (PageOrder::LayerFirst, 64, 8_192),
        (PageOrder::LayerFirst, 1, 128),
    ];
    for (order, tokens, largest) in cases {
        let layout = mla(61, tokens, 576, DType::Bf16, order);
        for log2 in 0..17 {
            let alignment = Alignment::new(1 << log2).unwrap();
            let aligned = layout.is_stride_page_aligned(alignment);
            assert_eq!(aligned, alignment.bytes() <= largest, "{layout} at {}", alignment.bytes());
            assert_eq!(aligned, is_aligned(&layout, alignment.bytes()));
            // Base pages of 4, 16 and 64 KiB are parameters like any other.
            let padded = layout.strides(3, alignment).unwrap();
            for plane in 0..padded.planes() {
                let piece = padded.piece(PageIndex::new(2), plane);
                assert!(alignment.is_aligned(piece.start) && piece.len() == layout.piece_len());
            }
        }
    }
}

#[test]
fn pieces_lie_at_the_worked_addresses() {
    let page = PageIndex::new(1);
    for order in [PageOrder::PageFirst, PageOrder::PageFirstDirect, PageOrder::PageHead] {
        let strides = mha(32, 64, 8, order).strides(3, Alignment::NONE).unwrap();
        assert_eq!(strides.piece(page, 0), 0x40_0000..0x80_0000);
        assert_eq!(strides.piece(page, 1), 0x100_0000..0x140_0000);
        assert_eq!(strides.region_len(), 2 * 0xC0_0000);
    }
    let strides = mha(32, 64, 8, PageOrder::LayerFirst).strides(3, Alignment::NONE).unwrap();
    assert_eq!((strides.planes(), strides.slot_len(), strides.plane_stride()), (64, 131_072, 393_216));
    for plane in 0..64 {
        let start = 64 * 2_048 + plane as usize * 393_216;
        assert_eq!(strides.piece(page, plane), start..start + 131_072);
    }
    let strides = mla(61, 64, 576, DType::Bf16, PageOrder::PageFirst).strides(3, Alignment::NONE).unwrap();
    assert_eq!(strides.piece(PageIndex::new(2), 0), 8_994_816..8_994_816 + 4_497_408);
}

/// A shape with all its dimensions: `heads` 1 and `tensors` 1 stand for a latent vector.
#[derive(Clone, Copy, Debug)]
struct Shape {
    tensors: usize,
    layers: usize,
    pages: usize,
    tokens: usize,
    heads: usize,
    dim: usize,
}

/// One element: K or V, layer, page, token in the page, head, place in the vector.
#[derive(Clone, Copy, Debug)]
struct Element {
    tensor: usize,
    layer: usize,
    page: usize,
    token: usize,
    head: usize,
    at: usize,
}

impl Shape {
    fn layout(&self, order: PageOrder) -> PageLayout {
        let [layers, tokens, heads, dim] = [self.layers, self.tokens, self.heads, self.dim].map(|n| n as u32);
        let geometry = match self.tensors {
            1 => Geometry::Mla { layers, tokens, latent_dim: dim, dtype: DType::Bf16 },
            _ => Geometry::Mha { layers, tokens, heads, head_dim: dim, dtype: DType::Bf16 },
        };
        PageLayout::new(geometry, order).unwrap()
    }

    fn elements(self) -> impl Iterator<Item = Element> {
        let Self { tensors, layers, pages, tokens, heads, dim } = self;
        (0..tensors * layers * pages * tokens * heads * dim).map(move |mut index| {
            let mut digit = |of| {
                let digit = index % of;
                index /= of;
                digit
            };
            let (at, head, token, page) = (digit(dim), digit(heads), digit(tokens), digit(pages));
            Element { tensor: digit(tensors), layer: digit(layers), page, token, head, at }
        })
    }

    /// The layer view: the place of an element in the whole tensor, from its dimensions as SGLang has them (2.2).
    fn in_tensor(&self, order: PageOrder, e: Element) -> usize {
        let Self { tensors, layers, pages, tokens, heads, dim } = *self;
        let slot = e.page * tokens + e.token;
        let slots = pages * tokens;
        let place = match order {
            PageOrder::LayerFirst => {
                vec![(e.tensor, tensors), (e.layer, layers), (slot, slots), (e.head, heads), (e.at, dim)]
            }
            PageOrder::PageFirst => {
                vec![(e.tensor, tensors), (slot, slots), (e.layer, layers), (e.head, heads), (e.at, dim)]
            }
            PageOrder::PageFirstDirect => vec![
                (e.tensor, tensors),
                (e.page, pages),
                (e.layer, layers),
                (e.token, tokens),
                (e.head, heads),
                (e.at, dim),
            ],
            PageOrder::PageHead => vec![
                (e.tensor, tensors),
                (e.page, pages),
                (e.head, heads),
                (e.token, tokens),
                (e.layer, layers),
                (e.at, dim),
            ],
        };
        2 * place.into_iter().fold(0, |sum, (digit, of)| sum * of + digit)
    }

    /// The page view: the piece of an element, and its place in the piece (2.7).
    fn in_page(&self, order: PageOrder, e: Element) -> (u32, usize) {
        let Self { layers, tokens, heads, dim, .. } = *self;
        let place = match order {
            PageOrder::LayerFirst => (e.token * heads + e.head) * dim + e.at,
            PageOrder::PageFirst => ((e.token * layers + e.layer) * heads + e.head) * dim + e.at,
            PageOrder::PageFirstDirect => ((e.layer * tokens + e.token) * heads + e.head) * dim + e.at,
            PageOrder::PageHead => ((e.head * tokens + e.token) * layers + e.layer) * dim + e.at,
        };
        let plane = match order {
            PageOrder::LayerFirst => e.tensor * layers + e.layer,
            _ => e.tensor,
        };
        (plane as u32, 2 * place)
    }
}

/// Both views, element by element, and that together they are the whole region.
fn check_b029(shape: Shape) {
    for order in PageOrder::ALL {
        let layout = shape.layout(order);
        let strides = layout.strides(shape.pages as u32, Alignment::NONE).unwrap();
        let mut seen = vec![false; strides.region_len() / 2];
        for element in shape.elements() {
            let (plane, offset) = shape.in_page(order, element);
            let piece = strides.piece(PageIndex::new(element.page as u32), plane);
            let place = piece.start + offset;
            assert!(place < piece.end, "{order:?} {shape:?} {element:?}: in its piece");
            assert_eq!(place, shape.in_tensor(order, element), "{order:?} {shape:?} {element:?}");
            assert!(!std::mem::replace(&mut seen[place / 2], true), "{order:?} {element:?}: its own place");
        }
        assert!(seen.into_iter().all(|seen| seen), "{order:?} {shape:?}: the product of the dimensions");
    }
}

#[test]
fn b029_layer_view_and_page_view_address_the_same_element() {
    check_b029(Shape { tensors: 2, layers: 3, pages: 5, tokens: 4, heads: 2, dim: 8 });
    check_b029(Shape { tensors: 1, layers: 3, pages: 5, tokens: 4, heads: 1, dim: 8 });
    check_b029(Shape { tensors: 2, layers: 1, pages: 1, tokens: 1, heads: 1, dim: 1 });
}

#[test]
fn b031_a_page_has_as_many_bytes_as_its_pieces() {
    for dtype in DTYPES {
        for order in PageOrder::ALL {
            let mha = Geometry::Mha { layers: 3, tokens: 5, heads: 7, head_dim: 11, dtype };
            let mla = Geometry::Mla { layers: 3, tokens: 5, latent_dim: 13, dtype };
            let elements = [2 * 3 * 5 * 7 * 11, 3 * 5 * 13];
            for (geometry, elements) in [mha, mla].into_iter().zip(elements) {
                let layout = PageLayout::new(geometry, order).unwrap();
                assert_eq!(layout.page_len(), elements * dtype.len());
                let strides = layout.strides(4, Alignment::new(512).unwrap()).unwrap();
                let pieces = (0..strides.planes()).map(|plane| strides.piece(PageIndex::new(3), plane).len());
                assert_eq!(pieces.sum::<usize>(), layout.page_len());
                assert_eq!((strides.page_len(), strides.slot_len()), (layout.page_len(), layout.piece_len()));
            }
        }
    }
}

#[test]
fn b032_a_dimension_of_zero_is_refused_by_name() {
    for index in 0..3_usize.pow(5) {
        let [layers, tokens, heads, dim, slots] =
            [0, 1, 2, 3, 4].map(|digit| (index / 3_usize.pow(digit) % 3) as u32);
        for order in PageOrder::ALL {
            let dtype = DType::F16;
            let mha = Geometry::Mha { layers, tokens, heads, head_dim: dim, dtype };
            let mla = Geometry::Mla { layers, tokens, latent_dim: dim, dtype };
            let names = [("layers", layers), ("tokens", tokens), ("heads", heads), ("head_dim", dim)];
            check_zero(PageLayout::new(mha, order), &names, slots);
            let names = [("layers", layers), ("tokens", tokens), ("latent_dim", dim)];
            check_zero(PageLayout::new(mla, order), &names, slots);
        }
    }
    check_zero(PageLayout::opaque(0), &[("len", 0)], 1);
    for (layers, rest) in [(0, 1), (1, 0), (0, 0), (1, 1)] {
        for order in PageOrder::ALL {
            let state = Geometry::State { layers, layer_len: rest as usize };
            check_zero(PageLayout::new(state, order), &[("layers", layers), ("layer_len", rest)], 1);
            let indexer = Geometry::Indexer { layers, tokens: 1, token_len: rest };
            check_zero(PageLayout::new(indexer, order), &[("layers", layers), ("token_len", rest)], 1);
            let dtype = DType::F16;
            let half = Geometry::HalfMha { layers, tokens: 1, heads: rest, head_dim: 1, dtype };
            check_zero(PageLayout::new(half, order), &[("layers", layers), ("heads", rest)], 1);
        }
    }
}

fn check_zero(layout: Result<PageLayout>, dimensions: &[(&str, u32)], slots: u32) {
    let zero = dimensions.iter().find(|(_, value)| *value == 0);
    match (layout, zero) {
        (Err(error), Some((name, _))) => {
            assert_eq!(error.kind(), ErrorKind::InvalidConfig);
            assert!(error.to_string().contains(&format!("{name} is 0")), "{error}");
        }
        (Ok(layout), None) => {
            let strides = layout.strides(slots, Alignment::NONE);
            assert_eq!(
                strides.map_err(|error| error.kind()).err(),
                (slots == 0).then_some(ErrorKind::InvalidConfig)
            );
        }
        (layout, zero) => panic!("{layout:?}, {zero:?}"),
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let max = u32::MAX;
    let geometries = [
        Geometry::Mha { layers: max, tokens: max, heads: max, head_dim: max, dtype: DType::F32 },
        Geometry::Mha { layers: max, tokens: max, heads: 1, head_dim: 1, dtype: DType::U8 },
        Geometry::Mha { layers: 1 << 31, tokens: 1, heads: 1, head_dim: 1, dtype: DType::U8 },
        Geometry::Mla { layers: max, tokens: max, latent_dim: 2, dtype: DType::U8 },
        Geometry::HalfMha { layers: max, tokens: max, heads: max, head_dim: max, dtype: DType::F32 },
        Geometry::Indexer { layers: max, tokens: max, token_len: max },
        Geometry::State { layers: 2, layer_len: usize::MAX },
        Geometry::Opaque { len: usize::MAX },
        Geometry::Opaque { len: isize::MAX as usize + 1 },
    ];
    for geometry in geometries {
        let error = PageLayout::new(geometry, PageOrder::LayerFirst).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{geometry:?}");
        assert!(error.to_string().contains("overflows"), "{error}");
    }
    let largest = PageLayout::opaque(isize::MAX as usize).unwrap();
    assert_eq!(largest.page_len(), isize::MAX as usize);
    for (slots, alignment) in [(2, 1), (1, 4_096), (u32::MAX, 1)] {
        let strides = largest.strides(slots, Alignment::new(alignment).unwrap());
        assert_eq!(strides.unwrap_err().kind(), ErrorKind::InvalidConfig);
    }
}

#[test]
fn what_is_no_layout_is_not_read_as_one() {
    let good = "mha dtype=bf16 order=page_first layers=4 tokens=32 heads=2 head_dim=64";
    assert_eq!(good.parse::<PageLayout>().unwrap().to_string(), good);
    let bad = [
        "",
        "mha",
        "gqa dtype=bf16 order=page_first layers=4 tokens=32 heads=2 head_dim=64",
        "mha dtype=bf17 order=page_first layers=4 tokens=32 heads=2 head_dim=64",
        "mha dtype=bf16 order=page_last layers=4 tokens=32 heads=2 head_dim=64",
        "mha dtype=bf16 order=page_first layers=0 tokens=32 heads=2 head_dim=64",
        "mha dtype=bf16 order=page_first layers=-4 tokens=32 heads=2 head_dim=64",
        "mha dtype=bf16 order=page_first layers=4294967296 tokens=32 heads=2 head_dim=64",
        "mha dtype=bf16 order=page_first layers=4 tokens=32 heads=2",
        "mha dtype=bf16 order=page_first layers=4 tokens=32 heads=2 head_dim=64 head_dim=65",
        "mha dtype=bf16 order=page_first layers=4 tokens=32 heads=2 head_dim=64 ",
        "mha order=page_first dtype=bf16 layers=4 tokens=32 heads=2 head_dim=64",
        "mha dtype=bf16 order=page_first layers=04 tokens=32 heads=2 head_dim=64",
        "mla dtype=bf16 order=page_first layers=4 tokens=32 latent_dim=2 window=8",
        "opaque dtype=f32 order=page_first len=4096",
        "half dtype=bf16 order=page_first layers=4 tokens=32 heads=2 head_dim=64",
        "half_mha dtype=bf16 order=page_first layers=4 tokens=32 head_dim=64 heads=2",
        "indexer dtype=bf16 order=page_first layers=4 tokens=32 token_len=132",
        "indexer dtype=u8 order=page_first layers=4 tokens=0 token_len=132",
        "state dtype=u8 order=page_first layers=4 layer_len=0",
        "state dtype=u8 order=page_first layers=4",
    ];
    for text in bad {
        let error = text.parse::<PageLayout>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidConfig, "{text}");
    }
    let error = "first_page".parse::<PageOrder>().unwrap_err().to_string();
    assert!(error.contains("layer_first, page_first, page_first_direct, page_head"), "{error}");
}

fn layouts() -> impl Strategy<Value = PageLayout> {
    let count = || prop_oneof![1..5_u32, 1..1_000_u32];
    let order = prop::sample::select(PageOrder::ALL.to_vec());
    let dtype = prop::sample::select(DTYPES.to_vec());
    (0..6, count(), count(), count(), count(), dtype, order).prop_map(
        |(kind, layers, tokens, heads, head_dim, dtype, order)| {
            let geometry = match kind {
                0 => Geometry::Mha { layers, tokens, heads, head_dim, dtype },
                1 => Geometry::Mla { layers, tokens, latent_dim: head_dim, dtype },
                2 => Geometry::HalfMha { layers, tokens, heads, head_dim, dtype },
                3 => Geometry::Indexer { layers, tokens, token_len: head_dim },
                4 => Geometry::State { layers, layer_len: heads as usize * head_dim as usize },
                _ => Geometry::Opaque { len: layers as usize * tokens as usize },
            };
            PageLayout::new(geometry, order).unwrap()
        },
    )
}

proptest! {
    #[test]
    fn a_layout_is_its_text(layout in layouts(), other in layouts()) {
        let text = layout.to_string();
        prop_assert_eq!(text.parse::<PageLayout>().unwrap(), layout);
        prop_assert_eq!(text == other.to_string(), layout == other, "equal lines, equal layouts");
        prop_assert!(!text.contains(['\n', '\t']) && !text.contains("  "));
        prop_assert_eq!(layout.page_len(), layout.planes() as usize * layout.piece_len());
    }

    #[test]
    fn b029_in_random_shapes(
        (tensors, layers, pages, tokens, heads, dim) in
            (1..3_usize, 1..4_usize, 1..4_usize, 1..4_usize, 1..4_usize, 1..4_usize),
    ) {
        let heads = if tensors == 1 { 1 } else { heads };
        check_b029(Shape { tensors, layers, pages, tokens, heads, dim });
    }

    #[test]
    fn padded_pieces_start_aligned_and_keep_their_length(layout in layouts(), log2 in 0..17_u32, slots in 1..9_u32) {
        let alignment = Alignment::new(1 << log2).unwrap();
        let strides = layout.strides(slots, alignment).unwrap();
        for slot in 0..slots {
            for plane in [0, strides.planes() - 1] {
                let piece = strides.piece(PageIndex::new(slot), plane);
                prop_assert!(alignment.is_aligned(piece.start));
                prop_assert_eq!(piece.len(), layout.piece_len());
            }
        }
    }
}

#[test]
fn room_is_given_where_it_is_an_eighth_of_a_piece_at_most() {
    let mut wanted = Capabilities::new(Alignment::base_page(), false);
    wanted.room = 8_192;
    let room = |len| PageLayout::opaque(len).unwrap().strides_for(2, &wanted).unwrap().room();
    assert_eq!([room(4_096), room(65_535), room(65_536), room(1 << 20)], [0, 0, 8_192, 8_192]);
}
