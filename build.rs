//! Links the driver: the flags every kernel-mode driver needs come from `wdk-build`, the resources from `build/`.

#[path = "src/events/table.rs"]
mod events;
#[path = "build/message_table.rs"]
mod message_table;
#[path = "build/resources.rs"]
mod resources;
#[path = "build/version_resource.rs"]
mod version_resource;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=src/events/table.rs");
    resources::link(&[version_resource::resource()?, message_table::resource()])?;
    wdk_build::configure_wdk_binary_build()?;
    Ok(())
}
