#![no_std]
//! NDKPI, NDIS and NT ABI for x64.
