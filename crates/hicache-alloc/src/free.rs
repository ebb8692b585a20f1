//! Which slots are free: a bitmap that gives the lowest first.

const BITS: u32 = u64::BITS;

/// A set bit is a free slot.
#[derive(Debug)]
pub(crate) struct FreeSlots {
    words: Vec<u64>,
    /// No word below this one has a free slot.
    first: usize,
    count: usize,
}

impl FreeSlots {
    /// `slots` slots, all free.
    pub(crate) fn new(slots: u32) -> Self {
        let mut words = vec![u64::MAX; slots.div_ceil(BITS) as usize];
        if let (Some(last), rest @ 1..) = (words.last_mut(), slots % BITS) {
            *last = (1 << rest) - 1;
        }
        Self { words, first: 0, count: slots as usize }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Takes the `count` lowest, or none at all. Lowest first, so that the slots of a batch lie side by side.
    pub(crate) fn take(&mut self, count: usize) -> Option<Vec<u32>> {
        if count > self.count {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let word = &mut self.words[self.first];
            if *word == 0 {
                self.first += 1;
                continue;
            }
            taken.push(self.first as u32 * BITS + word.trailing_zeros());
            *word &= *word - 1;
        }
        self.count -= count;
        Some(taken)
    }

    /// Takes this one. False if it is not free, or if there is no such slot.
    pub(crate) fn take_at(&mut self, slot: u32) -> bool {
        let (index, bit) = (slot / BITS, 1 << (slot % BITS));
        match self.words.get_mut(index as usize) {
            Some(word) if *word & bit != 0 => {
                *word &= !bit;
                self.count -= 1;
                true
            }
            _ => false,
        }
    }

    /// Gives back a slot that was taken.
    pub(crate) fn give_back(&mut self, slot: u32) {
        let (index, bit) = ((slot / BITS) as usize, 1 << (slot % BITS));
        debug_assert_eq!(self.words[index] & bit, 0, "slot {slot} is free already");
        self.words[index] |= bit;
        self.count += 1;
        self.first = self.first.min(index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_has_no_slots_beyond_the_end() {
        for slots in [1, 63, 64, 65, 128, 130] {
            let mut free = FreeSlots::new(slots);
            assert!(!free.take_at(slots));
            assert!(!free.take_at(u32::MAX));
            assert_eq!(free.take(slots as usize).unwrap(), (0..slots).collect::<Vec<_>>());
            assert_eq!(free.take(1), None);
            assert_eq!(free.take(0), Some(Vec::new()));
        }
    }

    #[test]
    fn a_slot_given_back_below_the_others_is_the_next_taken() {
        let mut free = FreeSlots::new(200);
        free.take(150).unwrap();
        free.give_back(140);
        free.give_back(3);
        assert_eq!(free.take(3).unwrap(), [3, 140, 150]);
        assert!(free.take_at(199));
        assert!(!free.take_at(199));
        assert_eq!(free.count(), 48);
    }
}
