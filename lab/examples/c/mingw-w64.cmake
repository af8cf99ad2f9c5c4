# SPDX-License-Identifier: MIT OR Apache-2.0

# MinGW-w64's gcc (Debian: gcc-mingw-w64-x86-64).

set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)
set(CMAKE_C_COMPILER x86_64-w64-mingw32-gcc)
# The headers of the kernel are MinGW-w64's as well: /usr/share/mingw-w64/include/ddk.
set(CMAKE_FIND_ROOT_PATH /usr/x86_64-w64-mingw32 /usr/share/mingw-w64)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
