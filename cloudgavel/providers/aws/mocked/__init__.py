"""EC2 without a cloud: moto, and in front of it what moto leaves out.

The dry run and the tests send every call of the real provider through here: nothing leaves the
process. moto is imported when a mocked cloud is opened.
"""
