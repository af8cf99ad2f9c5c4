//! Links the driver: the flags every kernel-mode driver needs come from `wdk-build`, the version resource
//! from [`version_resource`].

#[path = "build/version_resource.rs"]
mod version_resource;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    version_resource::link()?;
    wdk_build::configure_wdk_binary_build()?;
    Ok(())
}
