"""The smallest complete model: copy this folder to add your own."""
