// SPDX-License-Identifier: MIT OR Apache-2.0

//! Searching, comparing and sorting, as in C.

use super::format::{Width, text};
use crate::{guest::Guest, image, imports};

const LONGEST: usize = 1 << 20;

fn lower(character: u16) -> u16 {
    match u8::try_from(character) {
        Ok(byte) => byte.to_ascii_lowercase().into(),
        Err(_) => character,
    }
}

/// Compares up to `count` characters: negative, 0, or positive.
fn compare(left: usize, right: usize, width: Width, count: usize, fold: bool) -> i32 {
    let character = |at: usize, index: usize| {
        let raw = match width {
            Width::Wide => Guest::<u16>::from_address(at).add(index).read(),
            Width::Narrow => Guest::<u8>::from_address(at).add(index).read().into(),
        };
        if fold { lower(raw) } else { raw }
    };
    for index in 0..count {
        let (left, right) = (character(left, index), character(right, index));
        if left != right || left == 0 {
            return i32::from(left) - i32::from(right);
        }
    }
    0
}

/// The elements that `qsort` sorts.
struct Elements {
    base: Guest<u8>,
    size: usize,
    routine: extern "efiapi" fn(usize, usize) -> i32,
}

impl Elements {
    fn at(&self, index: usize) -> Guest<u8> {
        self.base.add(index * self.size)
    }

    fn is_less(&self, left: usize, right: usize) -> bool {
        let (left, right) = (self.at(left).address(), self.at(right).address());
        image::call("the comparison of qsort", || (self.routine)(left, right)) < 0
    }

    fn swap(&self, left: usize, right: usize) {
        let mut elements = [vec![0; self.size], vec![0; self.size]];
        self.at(left).read_bytes(&mut elements[0]);
        self.at(right).read_bytes(&mut elements[1]);
        self.at(left).write_bytes(&elements[1]);
        self.at(right).write_bytes(&elements[0]);
    }

    /// Moves the element at `root` down its heap of `count` elements.
    fn sift(&self, mut root: usize, count: usize) {
        loop {
            let mut largest = root;
            for child in [2 * root + 1, 2 * root + 2] {
                if child < count && self.is_less(largest, child) {
                    largest = child;
                }
            }
            if largest == root {
                return;
            }
            self.swap(root, largest);
            root = largest;
        }
    }

    fn sort(&self, count: usize) {
        for root in (0..count / 2).rev() {
            self.sift(root, count);
        }
        for end in (1..count).rev() {
            self.swap(0, end);
            self.sift(0, end);
        }
    }
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Returns the number of characters before the terminator.
    [any]
    fn wcslen(string: usize) -> usize {
        text(string, Width::Wide, LONGEST).len()
    }

    /// Finds the first occurrence of a character; the terminator counts.
    [any]
    fn wcschr(string: usize, character: u16) -> usize {
        let characters = text(string, Width::Wide, LONGEST);
        let position = characters.iter().chain([&0]).position(|&one| one == character);
        position.map_or(0, |index| string + 2 * index)
    }

    /// Finds the last occurrence of a character; the terminator counts.
    [any]
    fn wcsrchr(string: usize, character: u16) -> usize {
        let characters = text(string, Width::Wide, LONGEST);
        let position = if character == 0 { Some(characters.len()) } else { characters.iter().rposition(|&one| one == character) };
        position.map_or(0, |index| string + 2 * index)
    }

    /// Compares wide strings.
    [any]
    fn wcscmp(left: usize, right: usize) -> i32 {
        compare(left, right, Width::Wide, LONGEST, false)
    }

    /// Compares up to `count` wide characters.
    [any]
    fn wcsncmp(left: usize, right: usize, count: usize) -> i32 {
        compare(left, right, Width::Wide, count, false)
    }

    /// Compares wide strings without regard to the case of ASCII letters.
    [any]
    fn _wcsicmp(left: usize, right: usize) -> i32 {
        compare(left, right, Width::Wide, LONGEST, true)
    }

    /// Compares up to `count` wide characters without regard to the case of ASCII letters.
    [any]
    fn _wcsnicmp(left: usize, right: usize, count: usize) -> i32 {
        compare(left, right, Width::Wide, count, true)
    }

    /// Compares strings.
    [any]
    fn strcmp(left: usize, right: usize) -> i32 {
        compare(left, right, Width::Narrow, LONGEST, false)
    }

    /// Compares up to `count` characters.
    [any]
    fn strncmp(left: usize, right: usize, count: usize) -> i32 {
        compare(left, right, Width::Narrow, count, false)
    }

    /// Compares up to `count` characters without regard to the case of ASCII letters.
    [any]
    fn _strnicmp(left: usize, right: usize, count: usize) -> i32 {
        compare(left, right, Width::Narrow, count, true)
    }

    /// Sorts elements in place.
    [any]
    fn qsort(base: Guest<u8>, count: usize, size: usize, routine: usize) {
        // SAFETY: what the image passed as the function that compares two elements.
        let routine = unsafe { image::function("the comparison of qsort", routine) };
        Elements { base, size, routine }.sort(count);
    }
}
