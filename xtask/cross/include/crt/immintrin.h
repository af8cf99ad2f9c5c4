/* Empty on purpose: bindings need no intrinsics, and bindgen cannot express the AMX ones. */
